"""Ways to launch: one module each, listed in `registry`.

    accelerate, deepspeed, torchrun   a `Target` as `LaunchFiles`: files, environment, command
    portable                          the command as a file that runs wherever its folder is copied
    registry                          `find_engine`; a new engine is one module and one line there

Others use `registry`, and `export` what goes along. Engines know targets, never plans or scripts.
"""
