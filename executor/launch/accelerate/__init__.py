"""A target in Accelerate's words. Pure; Accelerate itself is not imported.

    config        `accelerate_config`: its configuration file
    environment   what `accelerate launch` would set from that file, for launchers that read none
    keys          every key that Accelerate reads, and `check_config` against them

`launch` and `launch.engines` use it.
"""
