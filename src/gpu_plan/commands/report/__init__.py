"""`plan report`: a run or a kept file, shown again without planning again.

    command     the verb: a run folder against its plan, or whatever a file turns out to be
    kept        a plan's or a sweep's JSON in any format
    of_check    a check's report in any format, and GitHub's step summary

`commands.check` renders through `of_check`, sweeps through `kept`.
"""
