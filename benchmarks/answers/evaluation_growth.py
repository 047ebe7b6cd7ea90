"""What a plan takes against layers and GPUs: counts, and processor seconds beside them.

    .venv/bin/python -m benchmarks.answers.evaluation_growth

Layers: Llama-3.1-405B's config with 16, 32, 64 and 126 of them, FSDP2 on 128 H100, traced once. Operators recorded,
events of a rank's stream, then seconds of: laying it out, one bound (tensors summed, the stream known), one exact plan
(the allocator simulated besides). GPUs: Llama-3.1-8B from shipped traces, FSDP2, 8 to 131,072 H100: the same, and the
whole search. Writes benchmarks/results/evaluation_growth.json and .md; seconds are of this machine, the least of a few.
"""

import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.answers.counts import counting
from benchmarks.places import RESULTS
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.job.run import run_job
from gpu_plan.planner.model.catalog_index import load_index
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.options.request import Request
from gpu_plan.planner.search.training.candidates import Batch, families
from gpu_plan.planner.search.training.evaluate import Evaluator
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.workload.training import Attention, Optimizer, Precision, Stack, Workload

LAYERS = (16, 32, 64, 126)
GPUS = ("8xH100", "8x8xH100", "64x8xH100", "512x8xH100", "2048x8xH100", "16384x8xH100")
DEEP, SHIPPED = "meta-llama/Llama-3.1-405B", "meta-llama/Llama-3.1-8B"
BATCH = Batch(micro_batch=2, accumulation_steps=1)
_TIMES, _BOUNDS = 5, 200


def least(run: Callable[[], Any], calls: int = 1) -> float:
    """Processor seconds of one call, the least of a few."""
    found = []
    for _ in range(_TIMES):
        start = time.process_time()
        for _ in range(calls):
            run()
        found.append((time.process_time() - start) / calls)
    return min(found)


def judged(provider: TraceProvider, gpus: str) -> dict[str, float]:
    """One family of one model on one cluster, the trace in hand."""
    cluster = parse_cluster(gpus)
    workload = Workload(
        seq_len=4096,
        precision=Precision("bf16-mixed"),
        optimizer=Optimizer("adamw"),
        attention=Attention.SDPA,
        stack=Stack.ACCELERATE,
    )

    def fresh() -> Evaluator:
        return Evaluator(provider=provider, workload=workload, cluster=cluster, speed=RooflineModel())

    known = families(workload, cluster, True)
    family = next(one for one in known if one.strategy.name == "fsdp" and str(one.checkpointing) == "none")
    warm = fresh()
    judgement = warm.judge(family, BATCH)
    return {
        "events": len(judgement.stream.event_sign),
        "bound_and_layout_seconds": least(lambda: fresh().judge(family, BATCH)),
        "bound_seconds": least(lambda: warm.judge(family, BATCH), _BOUNDS),
        "exact_seconds": least(lambda: warm.simulate(warm.judge(family, BATCH))),
    }


def by_layers(layers: int) -> dict[str, float]:
    """A model of so many layers, traced."""
    config = json.loads(load_index()[DEEP].path.read_text()) | {"num_hidden_layers": layers}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        cluster = parse_cluster("16x8xH100")
        provider = TraceProvider(
            source=resolve(folder), device=device_kind(cluster.gpu), attention="sdpa", use_cache=False
        )
        with counting() as counts:
            found = judged(provider, "16x8xH100")
    return {"layers": layers, "operators_recorded": counts["operators recorded"]} | found


def by_gpus(gpus: str) -> dict[str, float]:
    """A model whose traces are shipped, and the whole search."""
    cluster = parse_cluster(gpus)
    provider = TraceProvider(source=resolve(SHIPPED), device=device_kind(cluster.gpu), attention="sdpa")
    found = judged(provider, gpus)
    request = Request(
        model=SHIPPED, gpus=gpus, words=(), settings=(), pinned=False, explain=False, trust_remote_code=False,
        revision=None, use_cache=False, command="",
    )  # fmt: skip
    with counting() as counts:
        start = time.process_time()
        run_job(request, lambda _: None)
        seconds = time.process_time() - start
    kinds = ("candidates judged", "ranks laid out", "events laid out", "allocator events")
    searched = {f"search: {kind}": counts[kind] for kind in kinds}
    return {"gpus": cluster.world_size} | found | searched | {"search_seconds": seconds}


def markdown(found: dict[str, Any]) -> str:
    """The page."""

    def row(one: dict[str, float], first: list[str], last: list[str]) -> str:
        own = (
            f"{one['events']:,}",
            f"{1e3 * one['bound_and_layout_seconds']:.1f}",
            f"{1e6 * one['bound_seconds']:.0f}",
            f"{1e3 * one['exact_seconds']:.1f}",
        )
        return f"| {' | '.join((*first, *own, *last))} |"

    own = "events | laid out and summed, ms | a bound, µs | an exact plan, ms"
    layers = [row(one, [f"{one['layers']}", f"{one['operators_recorded']:,}"], []) for one in found["layers"]]
    gpus = [
        row(
            one,
            [f"{one['gpus']:,}"],
            [
                *(f"{value:,}" for name, value in one.items() if name.startswith("search: ")),
                f"{one['search_seconds']:.1f}",
            ],
        )
        for one in found["gpus"]
    ]
    return "\n".join(
        [
            "# Time against layers and GPUs\n",
            f"Processor time, the least of {_TIMES} ({found['machine']}). Written by"
            " `python -m benchmarks.answers.evaluation_growth`. A stream is laid out once for a trace, a strategy and a"
            " number of ranks; a bound is of every further micro batch. No operator is recorded where the trace is"
            " shipped.\n",
            f"{DEEP}'s config with other numbers of layers, FSDP2 on 128 H100, 4,096 tokens, micro batch 2:\n",
            f"| layers | operators recorded | {own} |",
            "|---|---|---|---|---|---|",
            *layers,
            "",
            f"{SHIPPED} from shipped traces, FSDP2, and its whole search (one process):\n",
            f"| GPUs | {own} | candidates judged | ranks laid out | events laid out | allocator events | search, s |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *gpus,
            "",
        ]
    )


def main() -> int:
    """Writes both result files."""
    try:
        found = {
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
            "layers": [by_layers(layers) for layers in LAYERS],
            "gpus": [by_gpus(gpus) for gpus in GPUS],
        }
    except PlanError as problem:
        print(problem, file=sys.stderr)
        return 2
    (RESULTS / "evaluation_growth.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "evaluation_growth.md").write_text(markdown(found))
    print(markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
