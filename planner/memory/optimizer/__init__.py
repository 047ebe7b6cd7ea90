"""What an optimizer keeps, and what its step and clipping allocate, on one rank's own list of tensors. Bytes; no torch.

One module per optimizer, each a mirror of the real implementation that it names; strategies ask for state, step and
clipping and learn nothing of a single optimizer.
"""
