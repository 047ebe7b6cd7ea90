"""How the command ends where nothing else catches it: streams that cannot be written, and errors of this program.

    streams     `guard`: stdout whose failures are one line, stderr that never fails, closed ones made whole
    internal    `keep`: an internal error as one line, and its traceback as a file
    leave       `leave`: the process ends at once, with what was registered for its end done

Used by `cli` alone; imports `planner.errors`, `planner.visible` and where the cache is.
"""
