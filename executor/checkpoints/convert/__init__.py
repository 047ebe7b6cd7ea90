"""Makes a checkpoint of another layout: `-m gpu_plan.executor.checkpoints.convert SOURCE TARGET --layout L ...`."""
