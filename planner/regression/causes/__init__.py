"""Why a job's memory is not what its baseline says. Pure.

    changes    inputs that differ: configuration, model, versions
    culprits   the tensors that a growth comes from
    explained  what a growth is said to come from, and the line that is annotated with it
    hints      what the user's own lines did, where a captured script shows it

Used by `regression` alone.
"""
