"""Makes torchao emulate float8 products in ranks on a CPU, where torch's own are a slow reference.

Active where `names.CPU_FLOAT8` says so; a recipe that the script itself gives to its Accelerator stays as it is.
torch's CPU kernel of `_scaled_mm` takes seconds for what float32 does in a millisecond; torchao's own way for devices
without float8 (Float8LinearConfig.emulate) rounds the factors alike and multiplies in float32.
"""

import dataclasses
import functools
from typing import Any

from gpu_plan.executor.runner.imports import PostImport


def install(imports: PostImport) -> None:
    """Before the script runs."""
    imports.when("accelerate.utils.dataclasses", _accelerate)


def _accelerate(module: Any) -> None:
    """The recipe that an Accelerator makes by itself under `mixed_precision="fp8"`."""
    kind = module.AORecipeKwargs
    original = kind.__post_init__

    @functools.wraps(original)
    def post_init(self: Any) -> None:
        own = self.config is not None
        original(self)
        if not own:
            self.config = dataclasses.replace(self.config, emulate=True)

    kind.__post_init__ = post_init
