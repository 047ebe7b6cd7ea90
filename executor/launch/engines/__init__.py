"""Ways to launch: one module each, listed in `registry`.

    accelerate, deepspeed, torchrun   a `Target` as `LaunchFiles`: files, environment, command
    registry                          `find_engine`; a new engine is one module and one line there

Others use `registry` alone. Engines know targets, never plans or scripts.
"""
