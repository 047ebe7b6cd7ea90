"""`plan runs` and `plan cancel`: the runs of this working directory.

    command    lists them, oldest first
    cancel     ends one, here or at the engine that placed it
"""
