"""Megatron-core's side of a training step, without torch: its model, how ranks share it, what stands around it.

    architecture  the model as TransformerConfig describes it
    huggingface   the same, from a model's configuration
    layout        degrees, recomputation and kernels of a job
    settings      the same from options, and which degrees a model takes
    part          what one rank traces
    arguments     a job as arguments of Megatron-LM
    schedules     in which order a rank runs its micro batches
    stages        layers over stages
    buffers       DDP's contiguous buffers of parameters and gradients

Read in NVIDIA/Megatron-LM at d98e8a64dd (August 2026) and NVIDIA/TransformerEngine 2.11; each rule names its function.
"""
