"""Compiled steps: torch.compile's own machinery, run for a device that is not there."""
