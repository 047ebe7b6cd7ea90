"""Kernels that take the place of what a class computes: for which classes they are there, and where they run.

`liger` has Liger's, `sinks` the flash attention of classes with attention sinks: facts for the search, without torch.
`transformer_engine` has its float8 layers, written out on meta.
"""
