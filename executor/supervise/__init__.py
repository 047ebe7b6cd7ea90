"""Owns a run from its first process to its last record: attempts, failures, restarts.

    supervisor, attempt, decide     `supervise`: attempts until the end; one launch; what follows it (pure)
    processes/, watch, interrupts   starting, watching and ending what runs, signals
    follow/, events, limits         pulses and logs of the ranks; what is told to whoever shows it; how long to wait
    causes/                         why an attempt ended
    ladder/                         the next plan after out of memory
    resumption                      from which checkpoint the next attempt goes on
    ledger, machine                 `run.json` and `environment.json`, true at every moment

Others use `supervisor.supervise`, `events`, `limits`, `ledger` and the pulses in `follow`. Imports no torch: planning
anew happens in a process of its own.
"""
