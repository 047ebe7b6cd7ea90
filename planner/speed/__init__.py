"""How long a step takes.

The interface is `gpu_plan.planner.speed.model`, and it is frozen: a strategy describes one rank's optimizer step as
`StepWork` (the trace, `Collective`s, `OptimizerWork`), a `SpeedModel` turns it into `StepTime` with an interval
and the basis of its rates. `roofline.RooflineModel` is the model that needs no measurement of the
user's own: operators against published rates (efficiency.toml), transfers against published curves
(collectives.toml). Nothing here imports torch.
"""
