"""How long a step takes, in seconds.

    model                 the interface, frozen: `StepWork` (trace, `Collective`s, `OptimizerWork`) to `StepTime`
    roofline              `RooflineModel`, which needs no measurement of the user's own
    operators, rates      a trace's operators as classes of equal work; what a device achieves (efficiency.toml)
    attention             fused kernels by kind and size of head
    chips                 how devices of one kind differ: a power limit, the slowest of several
    collectives, between  seconds of a transfer (collectives.toml); NCCL's algorithms between nodes
    streams               when each part runs: schedule, overlap, a step's trace, what scaling loses
    calibration           what `plan calibrate` measured on this machine, in place of what was published

Strategies describe work in `model`'s words, the search and the explorer ask a `SpeedModel`; times come with an interval
and the basis of their rates. No torch.
"""
