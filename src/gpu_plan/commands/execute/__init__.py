"""`plan ... --execute SCRIPT`: applies a plan, found now or saved before.

    command    finds or reads the plan, checks that it still holds, prints the command, launches and shows the run
    options    which options count: command line over project configuration; this host among `--hosts`; contradictions
    engines    options of the engines that place a job; submit: gives it to one and follows it
    shown      launch files as text
    stopwatch  where the time before the run went

`plan` and `export` share the two. The launch itself is `gpu_plan.executor.supervise`.
"""
