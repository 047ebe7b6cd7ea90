"""Folding: repeated blocks are traced once per kind and tiled back in. Folded equals full, by test.

    blocks, units          repeated layers, found by structure; which of them are run
    fold                   runs a model with the others passed through
    layout, align, proof   where executed units lie in a trace, and that they are alike
    expand                 copies units as often as the model has them

`tracer` uses it, `compile` parts of it. `blocks` and `fold` import torch, the arithmetic on traces does not.
"""
