"""The next plan after an out-of-memory end: the same effective batch, less memory.

    rungs             the candidates in order. Pure
    replan            `replan`: the first that fits by what was learnt
    planner_process   the planner, asked in a process of its own: planning would bring torch into this one (I/O)

Used by `supervise` alone.
"""
