"""How long a step takes, in seconds.

    model                 the interface, frozen: `StepWork` (trace, `Collective`s, `OptimizerWork`) to `StepTime`
    roofline              `RooflineModel`, which needs no measurement of the user's own
    operators, rates      a trace's operators as classes of equal work; what a device achieves (efficiency.toml)
    collectives, overlap  seconds of a transfer (collectives.toml); how long computation waits for one

Strategies describe work in `model`'s words, the search and the explorer ask a `SpeedModel`; times come with an interval
and the basis of their rates. No torch.
"""
