"""Looks at what really runs: models as they are found, and the whole job when its first step has ended.

    observer   `Observer`: what the hooks call
    forwards   the modules that the script calls, and every call: batches, evaluations, recomputation
    actual     strategy, precision, checkpointing, ... read from modules and from the libraries' state
    expected   `ParameterMismatch`: stops a script whose model is not the planned one, before its first step

Used by the hooks and `__main__`; imports no library that the script does not.
"""
