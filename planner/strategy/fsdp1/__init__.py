"""FSDP1 (torch's FullyShardedDataParallel) as one rank sees it, FULL_SHARD.

`strategy` is what the registry lists; the other modules follow the real runtime: how units are wrapped and flattened,
when flat parameters are gathered, freed and reduced, and what adapters change. Bytes per rank; no torch.
"""
