"""Notes beside a training plan: how a loop gets the plan's checkpointing and Liger's kernels, what settings mean."""
