"""Compiled steps: torch.compile's own machinery, run for a device that is not there.

    step, regions                what of a step is compiled, and how it stands in for modules' forward
    capture, checkpoints         one region's graph; checkpointing inside it
    lower, device                inductor's lowering, for a GPU that this machine lacks
    program, kernels             the wrapper that inductor wrote, run on meta; kernels that compute nothing

`trace` uses `step`, and only for a compiled job. Imports torch and its inductor.
"""
