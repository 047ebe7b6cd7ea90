"""`plan check`: the memory of a project's jobs against budgets and baselines, without a GPU.

    command     the verb: finds the jobs, has them checked, writes the report, gives the exit code
    init        `--init`: proposes jobs for a repository that has none
    measured    `--measured RUN`: reads recorded runs for the jobs that were checked

The checking is `gpu_plan.planner.regression`, the formats are `commands.report.of_check`.
"""
