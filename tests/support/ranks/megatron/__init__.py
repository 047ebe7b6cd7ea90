"""Megatron-core's own GPTModel run under its own schedules on gloo, and the same ranks replayed.

megatron-core is not among the dependencies: what uses this is left out where it is not installed.
"""
