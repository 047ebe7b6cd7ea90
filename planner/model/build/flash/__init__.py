"""Flash attention for the trace: transformers' own integration runs, the packages' functions stand in.

transformers finds them (modeling_flash_attention_utils.py) whether or not a package is there: its kernels cannot run on
meta. `second` and `third` are the functions of FlashAttention-2, and of the version that computes attention sinks;
`chosen` says which a class takes and on what it runs, `package` has transformers find it.
"""

from gpu_plan.planner.model.build.flash.chosen import (
    SECOND,
    Implementation,
    implementation_for,
    implementation_of,
    named,
    refuse_device,
    refuse_training,
)
from gpu_plan.planner.model.build.flash.package import flash_allowed, flash_package, hub_answered

__all__ = [
    "SECOND",
    "Implementation",
    "flash_allowed",
    "flash_package",
    "hub_answered",
    "implementation_for",
    "implementation_of",
    "named",
    "refuse_device",
    "refuse_training",
]
