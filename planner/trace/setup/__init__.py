"""How a traced step is set up, as its users and their loops do it.

    autocast        CUDA's autocast, which a machine without CUDA leaves out
    checkpointing   through transformers' own method
    host_inputs     what checkpoints keep, in host memory
    parameters      what a model stores, named, counted, and cast to a regime's types
    adapters        types that peft sees, scales of a quantised base
    loss_variants   losses of older transformers

`trace` and `capture` use them, `recording` and `compile` autocast. Imports torch.
"""
