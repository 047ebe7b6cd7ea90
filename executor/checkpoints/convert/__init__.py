"""Makes a checkpoint of another layout: `-m gpu_plan.executor.checkpoints.convert SOURCE TARGET --layout L ...`.

    __main__         the process: reads the source's manifest, converts, writes the target's
    torch_layouts    between one whole model with its optimizer and shards of torch.distributed.checkpoint
    universal        DeepSpeed's universal checkpoint

Started by `checkpoints.resume` as a process, imported by nobody: torch and DeepSpeed are loaded here.
"""
