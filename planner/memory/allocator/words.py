"""From `--set alloc.KEY=VALUE` to the caching allocator's settings, and to the variable that sets them for torch.

Names and values as pytorch c10/core/AllocatorConfig.cpp (parse*) reads them from PYTORCH_ALLOC_CONF.
"""

from collections.abc import Mapping

from gpu_plan.planner.memory.allocator.settings import AllocatorSettings
from gpu_plan.planner.units import MIB

_PREFIX = "alloc."


def allocator_settings(settings: Mapping[str, str]) -> AllocatorSettings:
    """The allocator that checked `--set` pairs ask for; torch's defaults where they are silent."""
    split = settings.get("alloc.max_split_size_mb")
    return AllocatorSettings(
        expandable_segments=settings.get("alloc.expandable_segments") == "true",
        max_split_size=None if split is None else int(split) * MIB,
        roundup_power2_divisions=int(settings.get("alloc.roundup_power2_divisions", "0")),
        garbage_collection_threshold=float(settings.get("alloc.garbage_collection_threshold", "0")),
    )


def allocator_variable(settings: Mapping[str, str]) -> str:
    """Value of PYTORCH_ALLOC_CONF for the same settings; empty where none is given."""
    pairs = [(key.removeprefix(_PREFIX), value) for key, value in settings.items() if key.startswith(_PREFIX)]
    # ConfigTokenizer::toBool knows True and False alone.
    return ",".join(f"{name}:{value.capitalize()}" for name, value in pairs)
