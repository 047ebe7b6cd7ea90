"""CUDA's caching allocator, simulated: what `torch.cuda.memory_allocated` and `_reserved` would report.

    replay             `simulate`: a stream of allocations and frees through the allocator
    heap, expandable   blocks and segments with addresses; expandable segments
    pools              what is reserved at least, without a simulation
    settings, words    the allocator's settings and size rules; `--set alloc.KEY=VALUE`
    result             figures in bytes, and a record from which any moment can be laid out

Numbers in, numbers out; knows no strategy and no model.
"""
