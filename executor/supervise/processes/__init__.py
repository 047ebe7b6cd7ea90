"""The processes of a run: started so that none outlives it. All I/O; what Linux alone offers is used there.

    launch     starts the launcher below a keeper
    keeper     the process that adopts what a run leaves behind, and ends it, also after a killed supervisor; started
               by `-m`
    strays     every process of a run, and its end
    tree       the table of processes: parents, states, names
    kernel     prctl
    activity   whether the ranks do anything at all

Used by `supervise` and its `follow`; psutil is loaded here, torch never.
"""
