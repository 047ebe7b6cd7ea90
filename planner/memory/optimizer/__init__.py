"""What an optimizer keeps, and what its step and clipping allocate, on one rank's own list of tensors. Bytes; no torch.

The rules are the optimizers' own: `gpu_plan.planner.workload.optimizers` has one file for each, a mirror of the real
implementation that it names. Strategies ask `steps` for state, step and clipping and learn nothing of a single one.
"""
