"""Attention of one rank.

core     a rank's heads under each of Transformer Engine's backends
context  ranks that share tokens: a ring, or heads exchanged for tokens
kernels  the operators that stand for flash attention's and cuDNN's
latent   multi-latent attention
"""
