"""Every node looked at before the job: `plan doctor --on ENGINE`, and each start of a run that an engine places.

    node       what one node sees and says; run by the engine once on each
    collect    starts it, reads what the nodes said, and judges it

Checks of one machine are the doctor's own; between nodes: the same files, versions and plan, and an all-reduce.
"""
