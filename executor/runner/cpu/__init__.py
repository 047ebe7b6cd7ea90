"""What ranks on CPU processes need so that the planned strategies run there at all.

    ranks    lets Accelerate run FSDP and DeepSpeed on CPU processes joined by gloo
    float8   makes torchao emulate float8 products
    standalone   starts both, models that are spread over ranks too, and the script, where this package is not: what
                 `plan export` writes out

Installed by `runner.hooks.registry` when the library in question is imported; imports none itself.
"""
