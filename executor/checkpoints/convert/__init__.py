"""Makes a checkpoint of another layout: `python -m executor.checkpoints.convert SOURCE TARGET --layout L ...`."""
