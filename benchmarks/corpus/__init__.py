"""Public training scripts and configurations that nobody here wrote: listed by a rule, drawn by a seed.

    listing       the rule, and the draw; writes scripts.json
    scripts.json  repositories with their commits, the listing, and what was drawn: names only, no file of theirs

The files themselves are read from a folder of checkouts, OWNER/NAME below it; what is missing there is told.
"""
