"""DeepSpeed under capture: an engine that shards nothing, behind `deepspeed.initialize`.

    config      what its JSON says of a step: batch, accumulation, types, stage, offload
    optimizers  its fused optimizers without their CUDA kernels, and those that the JSON names
    engine      forward, backward and step as the real engine's loop calls them
    take        puts them in place once deepspeed is imported

The planner's ZeRO strategies add what the real engine takes; the script's own would only stand in the way.
"""
