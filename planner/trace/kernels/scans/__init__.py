"""Fused kernels of sequence models, where transformers' fallback would loop in Python.

    replace                          `fused_scans`: puts them in place; all that others use
    mamba, mamba2, delta, recurrent  the kernels by family
    experts, pooling                 loops and masks whose shapes hang on values that meta lacks

A new family is a module and a line in `replace`. Imports torch.
"""
