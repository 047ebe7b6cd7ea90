"""The planned degrees of tensor parallel, brought to the models of an untouched script inside each rank.

    degrees       how many ranks do what, from the environment; which of them this is
    making        which model a script is making
    models        transformers' models are spread by transformers' own DistributedConfig when they are loaded or made
    clipping      torch's clipping by a norm, done otherwise
    meshes        an optimizer's groups and clipping, which torch can do on one mesh at a time
    sums          gradients that ranks share are summed once for each backward pass
    samples       ranks of a group see the same samples; groups see their own
    checkpoints   torch's distributed checkpoints, which any other degrees read, for Accelerate and the Trainer
    spread        installs all of it; all that the runner calls

They import nothing of this package but each other and `runner.imports`: `plan export` writes them out beside its files
(gpu_plan.executor.launch.engines.portable).
"""
