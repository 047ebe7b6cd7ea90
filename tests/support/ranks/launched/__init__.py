"""Models in stages as launched scripts have them, run for real on gloo."""
