"""One file for each strategy: its traits, what it refuses, and the replay that it stands for.

A module here defines `STRATEGY`, and is named as its value of `--strategy` is: gpu_plan.planner.strategy.registry finds
it by the folder, `piped/` and `experts/` included. It imports numpy inside functions only.
"""
