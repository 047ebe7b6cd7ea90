"""The processes of a run: started so that none outlives it. All I/O; what Linux alone offers is used there.

    launch     starts the launcher
    guard      a process that kills what a killed supervisor leaves behind; started by `-m`, imported by nobody
    strays     every process of a run, found by the run id in its environment, and its end
    activity   whether the ranks do anything at all

Used by `supervise` and its `follow`; psutil is loaded here, torch never.
"""
