"""What FSDP2 does with torchao's float8 weights: each rank casts its shard, and one byte per element is gathered.

torchao float8/fsdp_utils.py: WeightWithDynamicFloat8CastTensor (fsdp_pre_all_gather, fsdp_post_all_gather), which
accelerate switches on by default (utils/dataclasses.py: AORecipeKwargs.enable_fsdp_float8_all_gather). The scales,
computed once after each optimizer step (precompute_float8_dynamic_scale_for_fsdp), are a few bytes per layer.
"""

from collections.abc import Sequence

from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.moments import Point
from gpu_plan.planner.memory.stream.placing import Handle
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.trace.events import Category

DTYPE = "float8_e4m3fn"


def gathered(context: RankContext) -> frozenset[int]:
    """Parameters that are gathered in float8, by index."""
    if not context.precision.is_float8 or context.setting("fp8.all_gather", "true") != "true":
        return frozenset()
    layers = set(context.trace.layout.float8_linears)
    parameters = enumerate(context.trace.parameters)
    return frozenset(i for i, p in parameters if p.module in layers and p.name.endswith(".weight"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CastShard:
    """Bytes of one weight's shard."""

    wide: int
    """In fp32."""
    cast: int
    """In float8."""

    @staticmethod
    def of(numel: int) -> "CastShard":
        """A shard of so many elements."""
        return CastShard(wide=4 * numel, cast=numel)


def cast_shards(
    builder: StreamBuilder, at: Point, shards: Sequence[CastShard], unit: str, cuda_stream: int
) -> list[Handle]:
    """fsdp_pre_all_gather of each weight in turn: a scaled and a clamped fp32 copy of its shard, then float8.

    torchao float8/float8_training_tensor.py: _ToFloat8ConstrFunc, float8_utils.py: to_fp8_saturated.
    """
    made = []
    category = Category.COMMUNICATION
    for shard in shards:
        scaled = builder.alloc(at, shard.wide, category, "scaled weight shard", unit, cuda_stream=cuda_stream)
        clamped = builder.alloc(at, shard.wide, category, "clamped weight shard", unit, cuda_stream=cuda_stream)
        made.append(builder.alloc(at, shard.cast, category, "float8 weight shard", unit, cuda_stream=cuda_stream))
        builder.free(at, clamped)
        builder.free(at, scaled)
    return made
