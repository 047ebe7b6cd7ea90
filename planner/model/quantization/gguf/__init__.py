"""GGUF files: their header, and their types in a model on the meta device.

    file, names     the header's tensors, types and sizes (data is never read); which parameter each is
    layers, apply   weights left in blocks; `replace_gguf` puts them into a model

Used by `quantization.apply`; `file` and `names` import no torch.
"""
