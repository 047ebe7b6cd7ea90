"""Megatron-core's side of a training step, without torch: whose model runs, how it is shared out, and what stands around it.

    architecture  the model as TransformerConfig describes it
    huggingface   the same, from a model's configuration
    layout        degrees, recomputation and kernels of a job
    schedules     in which order a rank runs its micro batches
    stages        layers over stages
    buffers       DDP's contiguous buffers of parameters and gradients

Read in NVIDIA/Megatron-LM at d98e8a64dd (August 2026) and NVIDIA/TransformerEngine 2.11; each rule names its function.
"""
