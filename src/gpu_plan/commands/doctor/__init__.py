"""`plan doctor [SCRIPT]`: what is wrong with a script, with this machine and, with `--launch`, with a launch on it.

    command       the verb
    small_plan    a pinned plan of a small shipped model, for a trial launch where the user has no plan

The examination is `gpu_plan.executor.doctor`, its report `gpu_plan.reports.doctor`.
"""
