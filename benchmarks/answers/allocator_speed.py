"""Time and figures of the allocator's simulation: one model, several strategies, default and expandable segments.

`python -m benchmarks.answers.allocator_speed [CONFIG.json] [MICRO_BATCH] [SEQ_LEN]`; without arguments Llama-3.1-8B
with two sequences of 4096 tokens, full checkpointing, bf16-mixed, AdamW, 8 ranks.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from gpu_plan.planner.memory.allocator.replay import AllocatorResult, AllocatorSettings, simulate
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.catalog_index import CATALOG
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.trace.inputs.batch import training_batch
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.units import GIB
from gpu_plan.planner.workload.training import Attention, Checkpointing, Optimizer, Precision, Stack

CAPABILITY = (9, 0)
WORLD_SIZE = 8
STRATEGY_NAMES = ("single", "ddp", "fsdp", "zero3")
REPEATS = 5


def rank_streams(
    config: dict[str, object], micro_batch: int, seq_len: int, checkpointing: Checkpointing
) -> dict[str, RankStream]:
    """One rank's stream under every strategy."""
    model = build_model(config)
    tracer = Tracer(
        model=model,
        make_batch=lambda m, b, s: training_batch(m, batch=b, seq_len=s),
        profile=CudaProfile(capability=CAPABILITY),
        has_sequence=True,
    )
    hidden = config.get("hidden_size")
    streams = {}
    for name in STRATEGY_NAMES:
        strategy = STRATEGIES[name]
        variant = StepVariant(
            regime=strategy.regime(Precision("bf16-mixed"), Stack.ACCELERATE),
            checkpointing=checkpointing,
            attention=Attention.SDPA,
            stack=Stack.ACCELERATE,
            seq_len=seq_len,
        )
        context = RankContext(
            trace=tracer.trace(variant, micro_batch),
            precision=Precision("bf16-mixed"),
            optimizer=Optimizer("adamw"),
            stack=Stack.ACCELERATE,
            clipping=True,
            checkpointing=checkpointing,
            accumulation_steps=1,
            world_size=1 if name == "single" else WORLD_SIZE,
            capability=CAPABILITY,
            hidden_size=hidden if isinstance(hidden, int) else None,
        )
        streams[name] = strategy.rank(context).stream
    return streams


def timed(stream: RankStream, micro_batch: int, settings: AllocatorSettings) -> tuple[AllocatorResult, float]:
    """The result, and the best of a few times in seconds."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        result = simulate(stream, micro_batch, settings=settings)
        best = min(best, time.perf_counter() - start)
    return result, best


def main() -> None:
    default = CATALOG / "meta-llama--Llama-3.1-8B.json"
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    micro_batch = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    seq_len = int(sys.argv[3]) if len(sys.argv) > 3 else 4096
    config = json.loads(path.read_text())
    config = config.get("config", config)
    kinds = {"default": AllocatorSettings(), "expandable": AllocatorSettings(expandable_segments=True)}
    print(f"{path.stem}, micro batch {micro_batch}, {seq_len} tokens; GiB")
    columns = ("seconds", "sum", "allocated", "slack MiB", "reserved", "ratio", "largest free", "segments")
    print(f"{'':28}{'events':>8}" + "".join(f"{column:>13}" for column in columns))
    for checkpointing in (Checkpointing.NONE, Checkpointing.FULL):
        for name, stream in rank_streams(config, micro_batch, seq_len, checkpointing).items():
            for kind, settings in kinds.items():
                result, seconds = timed(stream, micro_batch, settings)
                label = f"{name} {checkpointing.value} {kind}"
                print(f"{label:28}{len(stream.event_sign):8}" + _row(stream, micro_batch, result, seconds))


def _row(stream: RankStream, micro_batch: int, result: AllocatorResult, seconds: float) -> str:
    summed = int(np.max(stream.live(micro_batch)))
    values = (
        f"{seconds:.3f}",
        f"{summed / GIB:.3f}",
        f"{result.peak_allocated_bytes / GIB:.3f}",
        f"{(result.peak_allocated_bytes - summed) / 2**20:.1f}",
        f"{result.peak_reserved_bytes / GIB:.3f}",
        f"{result.peak_reserved_bytes / result.peak_allocated_bytes:.4f}",
        f"{result.largest_free_block / GIB:.3f}",
        str(len(result.segments)),
    )
    return "".join(f"{value:>13}" for value in values)


if __name__ == "__main__":
    main()
