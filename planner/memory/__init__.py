"""A rank's memory over time, in bytes, and the terms outside the allocator. No torch.

    stream/              `RankStream`: one rank's allocations and frees; strategies build it with `StreamBuilder`
    optimizer/           what an optimizer keeps and what its step allocates
    allocator/           CUDA's caching allocator, simulated
    schedule, lead/      what waits for the device's streams: by code alone, and by the seconds of the step
    profile              `measure`: peak, phase, composition, the tensors that stand there
    evaluation           the stream of a job that evaluates between its steps
    phases, appended     of one that does something else between them; events behind those of a stream
    overheads            what torch's counters do not show: visible terms with intervals
    snapshot, timeline   a simulated run in PyTorch's snapshot format, and event by event

Strategies, the search, capture and the explorer use these; reads traces, knows no strategy.
"""
