"""torch's own FSDP in a script under capture: what is wrapped is told, and nothing is sharded.

    own            how the script shards by itself, gathered from its calls, as the plan's options have it
    stand_ins      FullyShardedDataParallel, fully_shard and FSDPModule that hold the whole model
    casts          the types in which a policy computes, on the way into and out of a wrapped module
    parameters     what a script asks its sharded parameters for
    of_accelerate  what a script asks Accelerate for: a ParallelismConfig, an FSDP plugin

The planner's FSDP strategies add what the real ones take; the script's own would only stand in the way.
"""
