"""ZeRO stage 3: partitioned weights, gathered ahead of their use, on the device, the host or in swap files."""
