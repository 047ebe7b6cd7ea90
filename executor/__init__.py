"""Applies a plan: launch files, the launch itself, what happens in the ranks, and what it took.

`launch/` a plan as files and a command, `script/` what a script takes, by its syntax tree; `supervise/` owns the
processes, says why an attempt ended and tries again, `live/` shows it; `runner/` is inside each rank and imports
nothing that the script does not need; `records/` is what they leave in the run folder; `checkpoints/` what a checkpoint
is and under which plan it can be resumed; `inference/` runs prompts; `doctor/` looks before a launch; `pytest_plugin/`
holds a test's memory without a GPU.

At the root stands what several rooms share: `job` (plan, script and how), `run_folder` and `read_run`, `names` of
files and environment variables, `deviations` of what ran from the plan, `reserve` (space for a last record); and what
the front door hands out: `current_plan`, `from_python.run` (a function through `function_job` and
`accelerate_environment`).

May import `gpu_plan.planner`; knows nothing of reports, the explorer and the command line. `current_plan`, `names` and
`runner/` do not even import the planner: they are what a training script pays for.
"""
