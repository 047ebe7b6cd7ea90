"""Engines that give a plan its nodes and run it there: SLURM, Ray, Kubeflow, SkyPilot.

    engine, registry, settings   what an engine is; which there are; what a site tells it
    kinds/                       one file for each: its submit file, its client, its facts
    export                       `plan export --to ENGINE`: a folder that runs there without this package
    submit, follow, end          `plan --execute --on ENGINE`: to its queue, watched, `plan cancel`
    lead                         inside the job: the same supervisor as everywhere, its ranks placed by the engine
    jobs                         what is submitted, as a file of the run folder

An engine starts one launcher on each node; all else is `supervise`'s: records, causes, ladder, checkpoints. No torch.
"""
