"""Optimizers: `traits` is what there is to know of one, each file of `kinds` says it of its own, `registry` finds them.

Nothing here imports torch, and nothing on the way to `plan --help` imports dataclasses.
"""
