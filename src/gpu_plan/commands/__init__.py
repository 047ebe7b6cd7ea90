"""The verbs of the command line, one module or folder each; `gpu_plan.cli` imports only the chosen one.

    plan, sweep                            the main job, and the main job over values of `--sweep`
    job/                                   what these two, `--execute` and the Python API have in common
    execute/, export                       runs a plan, or writes the files that would
    check/, diff, report/, runs, doctor/   compares, shows, examines
    explore, from_config, models, gpus     the explorer, other tools' configurations, the catalogs
    asked                                  how our own processes ask the planner

Each verb has `add_arguments` and `run`, which gives the exit code (`plan`, the main job, has `run_words`). Nothing but
`gpu_plan.cli` and `gpu_plan.api` (`job/`) imports from here. Imports at the top of a verb are what its `--help` costs:
heavy ones stand inside functions.
"""
