"""A model of an untouched script run in stages, as the plan has it, by torch.distributed.pipelining.

    layout    which rank holds which layers, and how micro batches go through them, from the environment
    models    transformers' models are cut where the script loads or makes them
    run       a training call of such a model: one step of the schedule, all micro batches forward and backward
    evaluate  a call without gradients: the whole batch through one stage after the other
    gradients what the schedule has left is the loss's own gradient once the script asks for it
    weights   the whole model's, put together for a file
    norms     clipping by the norm of all stages
    loaders   pipelines see samples of their own, the ranks of one the same
    install   all of it; all that the runner calls

They import nothing of this package but each other, what the ranks of `parallel` share, and how a class is cut
(gpu_plan.planner.trace.parallel.stages, which is the one that was planned): `plan export` writes all of them out.
"""
