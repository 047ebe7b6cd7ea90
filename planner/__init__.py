"""Plan: GPU memory, strategies and speed of a training step, from one traced step of the real model."""

__version__ = "0.1.0"
