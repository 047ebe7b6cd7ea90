"""Memory regressions: jobs that a repository names, their baselines, and what has changed since.

    jobs, limits, propose            jobs of `plan check` in a configuration; budgets as people write them; proposals
    run, state                       `check_jobs`: computes what may have changed, compares, rewrites baselines (I/O)
    computed, baseline, compare      a plan as what a baseline keeps; one small file per job; figures and status. Pure
    causes/, places                  why a figure moved; lines of the project's own files
    measured                         recorded runs against a job. Pure
    result                           `CheckReport`: versioned plain values that every report renders

`commands.check` uses these, reports read `result`. Imports `options`, `from_config` and `capture.files`; how a job is
planned is handed in as a function.
"""
