"""Degrees in which ranks share one copy of the model, as options: `pipeline` for `--pp` and what goes with it."""
