"""What a planner process keeps in memory between questions.

    providers, generations, captures   traces, generations, captured scripts; what a question may do if one is missing
    streams                            what strategies made of traces, for every configuration that asks the same
    recent                             the few values used last

Used by `tui.engine`, in its child processes.
"""
