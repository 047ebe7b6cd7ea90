"""The terminal explorer: `plan explore`.

    start, shell, app               from words or a file to a first state; the frame; keys, palette and mouse
    state, choices, spread, ahead   what is looked at, as values: options, their keys, where the next key leads. Pure
    session                         joins the state with the planner's processes
    engine/                         these processes: nothing is planned in the one that draws
    picture/, widgets/, screens/    what is drawn, as values; what draws it; screens over the picture
    keys, launching                 what keys do; a saved plan launched through the command line
    pauses                          when garbage is looked for: while nobody waits

Others use `start.explore`. May import planner, reports, and of the executor what reads and shows runs. `state`,
`choices` and `picture/` know no Textual; torch is in the engine's processes only.
"""
