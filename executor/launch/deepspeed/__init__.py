"""A target in DeepSpeed's words. Pure; DeepSpeed itself is not imported.

    config   `deepspeed_config`: the configuration file for ZeRO, offload and NVMe

`launch.engines` uses it.
"""
