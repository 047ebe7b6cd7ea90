"""A trial launch: a small job under the plan, on every rank, with every collective and one training step checked.

    run                              `trial`: starts it and has it judged (I/O)
    script, collectives, training    inside the ranks: torch and accelerate are imported here
    outcome                          what a rank writes of itself; standard library only
    judge                            from that to findings and figures: `Trial`, `TrialSpeed`. Pure

Others use `run.trial` and `judge`; `script` is started by path, and what it imports stays in the ranks.
"""
