"""Which operators selective checkpointing keeps; needs no torch, so that a cached plan can name them."""

SAVED_OPERATORS: tuple[str, ...] = (
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_flash_attention_forward",
    "flash3_attention_forward",
)
"""Matrix products and attention, as `torch.ops.aten` names them: the operators that cost time to run again.

torch.utils.checkpoint.create_selective_checkpoint_contexts takes them as a list of overloads. In a trace
`_flash_attention_forward` stands for the flash-attn package's own `flash_attn::_flash_attn_forward`,
`flash3_attention_forward` for the kernels' of attention sinks.
"""
