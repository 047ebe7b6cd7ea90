"""Quantised linear layers on the meta device: what they store, and what their kernels allocate. No values.

    base                                    what all share, and the product of packed weights
    four_bit, int8                          bitsandbytes
    experts                                 experts that are one parameter, as bitsandbytes' parametrization packs them
    packed_int, packed_older, packed_choice GPTQ and AWQ, with today's and older kernels
    fp8, mxfp4, floats                      float8 and MXFP4, through transformers' own quantizers
    compressed, torchao_weights             compressed-tensors, torchao

Used by `quantization` and its `gguf`; each module names the source that it mirrors. Imports torch.
"""
