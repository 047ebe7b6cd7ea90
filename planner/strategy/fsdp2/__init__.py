"""FSDP2 (torch's fully_shard) as one rank sees it.

`strategy` is what the registry lists and HSDP builds on; the other modules are its units and layout, the passes over
them, what is sent, what stays on the host, float8 shards and accumulated gradients. Bytes per rank; no torch.
"""
