"""Pipelines: which layers a stage holds, and in which order a rank runs its micro batches.

    schedules   what each rank does, as torch.distributed.pipelining's schedules order it
    classes     model types that are cut
    stages      layers over stages, stages over ranks
    places      a rank's stages and actions, and where they lie in its trace
    timeline    when everything ends: the makespan of a schedule, and its bubble
    chrome      the same as a Chrome/Perfetto trace

Pure; imported by strategies, the search and reports. No torch.
"""
