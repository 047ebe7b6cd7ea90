"""Inference: what a generation takes, and how to spread it."""
