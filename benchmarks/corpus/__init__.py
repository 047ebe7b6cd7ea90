"""Public training scripts and configurations that nobody here wrote: listed by a rule, drawn by a seed.

    listing       the rule, and the draw; writes scripts.json
    scripts.json  repositories with their commits, the listing, and what was drawn: names only, no file of theirs
    held          the second draw, by a rule that leaves out what cannot run here; writes held_scripts.json
    third to sixth further draws, from repositories that no earlier one looked at
    scripts       runs the drawn ones through `plan`, against expected_scripts.json and expected_held_scripts.json
    report        the outcomes for people

The files themselves are read from a folder of checkouts, OWNER/NAME below it; what is missing there is told.
"""
