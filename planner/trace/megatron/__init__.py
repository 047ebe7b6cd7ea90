"""One stage of Megatron-core's GPTModel on one rank, on the meta device: what it allocates, keeps and frees.

    group      collectives of a rank's groups, which send nothing
    products   Transformer Engine's norms and linear layers, in 16 bits and in float8
    attending  its attention backends, context parallel ranks, multi-latent attention
    local      layers of Megatron-core's own
    functions  fused functions between them
    layers     TransformerLayer and its parts
    experts    mixture-of-experts layers
    loss       the head and the loss over a vocabulary that ranks share
    stage      a stage of the model, its batch and its pass

Transformer Engine computes on CUDA alone and Megatron-core wants process groups, so their functions are written out
from their sources, allocation by allocation; what they leave to torch is left to torch.
"""
