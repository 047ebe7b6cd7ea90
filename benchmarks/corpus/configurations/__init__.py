"""Public training configurations that nobody here wrote: listed by a rule, drawn by a seed.

    listing       the rule, and the draw; writes drawn.json: names only, no file of theirs
    expected      what each drawn file must give, by a reader that shares nothing with `plan`; writes expected.json
    judged        `plan from-config` on each, against it; writes benchmarks/results/configurations.json and .md

The files themselves are read from a folder of checkouts, OWNER/NAME below it; what is missing there is told.
"""
