"""Runs of transformers' Trainer (and scripts built like it), with what their versions and kernels did otherwise."""
