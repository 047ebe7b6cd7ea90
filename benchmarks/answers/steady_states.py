"""Whether the allocator comes to a steady state along the layers of a step, so that a layer could stand for the next.

    .venv/bin/python -m benchmarks.answers.steady_states

Of every family of a model with the traces in hand, at two micro batches: the free blocks of each pool, by their sizes,
where a layer begins, held against those where the layer before began, in forward and in backward of both iterations. A
layer can be left out of the simulation only where all pools that it takes from find what they found before. Writes
benchmarks/results/steady_states.json and .md; counts, which no clock changes.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.answers.evaluation_speed import evaluator_of, splits
from benchmarks.places import RESULTS
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.memory.allocator.heap import SHIFT, Heap
from gpu_plan.planner.memory.allocator.settings import SMALL_LIMIT, AllocatorSettings
from gpu_plan.planner.memory.schedule import Schedule
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.search.training.candidates import Batch, families
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.provider import TraceProvider

MODELS = ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-405B")
GPUS = "8xH100"
MICRO_BATCHES = (1, 4)
_COUNTED = ("layers", "all pools", "largest pool", "but for one block")


def layer_begins(stream: RankStream) -> dict[int, int]:
    """Events at which a layer makes its first storage in a direction of a pass, and which pass and direction."""
    trace = stream.trace
    numbers = [re.search(r"\.(\d+)(\.|$)", name) for name in trace.modules]
    layers = np.asarray([-1 if number is None else int(number[1]) for number in numbers] + [-1])
    count = trace.num_tensors
    traced = stream.event_tensor < count * stream.num_passes
    of_event = np.where(traced, layers[trace.tensor_module[stream.event_tensor % count]], -1)
    direction = 2 * stream.event_segment + stream.event_in_backward
    begins: dict[int, int] = {}
    seen: set[tuple[int, int]] = set()
    for event in np.flatnonzero((stream.event_sign > 0) & (of_event >= 0)).tolist():
        one = int(direction[event]), int(of_event[event])
        if one not in seen:
            seen.add(one)
            begins[event] = one[0]
    return begins


def states(stream: RankStream, micro_batch: int) -> Iterator[tuple[int, dict[tuple[int, bool], tuple[int, ...]]]]:
    """Where layers begin: direction and pass, and the sizes of the free blocks of each pool by stream and kind."""
    settings, begins = AllocatorSettings(), layer_begins(stream)
    heap = Heap(settings, None, descending_addresses=False)
    rounded, streams = settings.round_sizes(stream.requested(micro_batch)).tolist(), stream.cuda_stream.tolist()
    returns = stream.returns(Schedule.AHEAD)
    kinds = {(one, size <= SMALL_LIMIT) for one, size in zip(streams, rounded, strict=True)}
    pools = {kind: heap.pool(*kind) for kind in sorted(kinds)}
    blocks = [0] * len(rounded)
    events = zip(stream.event_sign.tolist(), stream.event_tensor.tolist(), strict=True)
    for event, (sign, tensor) in enumerate(events):
        if event in begins:
            yield begins[event], {kind: tuple(block >> SHIFT for block in pool.free) for kind, pool in pools.items()}
        pool = pools[streams[tensor], rounded[tensor] <= SMALL_LIMIT]
        if sign > 0 and rounded[tensor]:
            heap.clock = event
            if heap.waiting and heap.waiting[0][0] <= event:
                heap.settle(event)
            blocks[tensor] = heap.malloc(pool, rounded[tensor])
        elif sign < 0 and blocks[tensor]:
            if returns is not None and returns[event] > event:
                heap.free_later(pool, blocks[tensor], int(returns[event]))
            else:
                heap.free(pool, blocks[tensor])
            blocks[tensor] = 0


def counted(stream: RankStream, micro_batch: int) -> dict[str, Any]:
    """Beginnings of layers that find what the one before found, in all pools and in the largest alone."""
    before: dict[int, dict[tuple[int, bool], tuple[int, ...]]] = {}
    found: Counter[str] = Counter()
    pools = 2 * stream.cuda_stream + (stream.sizes(micro_batch) <= SMALL_LIMIT)
    busiest = int(np.bincount(pools[stream.event_tensor]).argmax())
    for direction, state in states(stream, micro_batch):
        if direction in before:
            last, main = before[direction], (busiest // 2, bool(busiest % 2))
            found["layers"] += 1
            found["all pools"] += last == state
            found["largest pool"] += last[main] == state[main]
            gone, come = Counter(last[main]) - Counter(state[main]), Counter(state[main]) - Counter(last[main])
            found["but for one block"] += max(gone.total(), come.total()) == 1
        before[direction] = state
    return {name: found[name] for name in _COUNTED}


def run() -> list[dict[str, Any]]:
    """One line for each model, family and micro batch."""
    rows = []
    for model in MODELS:
        provider = TraceProvider(source=resolve(model), device=device_kind(parse_cluster(GPUS).gpu), attention="sdpa")
        evaluator = evaluator_of(provider)
        known = families(evaluator.workload, evaluator.cluster, provider.spec().can_checkpoint)
        alone = [family for family in known if family.copy_ranks == 1 and family.layout is None and not family.settings]
        for family in (family for family in alone if splits(evaluator, family)):
            for micro_batch in MICRO_BATCHES:
                stream = evaluator.judge(family, Batch(micro_batch=micro_batch, accumulation_steps=1)).plan.stream
                words = f"{family.strategy.title}, offload {family.offload}, checkpointing {family.checkpointing}"
                row = {"model": model, "family": words, "micro_batch": micro_batch, "events": len(stream.event_sign)}
                rows.append({**row, **counted(stream, micro_batch)})
    return rows


def page(rows: list[dict[str, Any]]) -> str:
    """The table."""
    lines = [
        "# Steady states of the allocator",
        "",
        "Where a layer begins, how often the free blocks of the allocator are, by their sizes, those that the layer"
        f" before found (accelerate, bf16-mixed, AdamW, {GPUS}). A layer could be left out of the simulation where all"
        " pools are; the largest is that of most events, and is told apart where it differs in one block. Written by"
        " `python -m benchmarks.answers.steady_states`.",
        "",
        "| model | family | micro batch | events | beginnings of layers | all pools as before | the largest as before"
        " | but for one block |",
        "|---|---|---|---|---|---|---|---|",
    ]
    names = ("model", "family", "micro_batch", "events", *_COUNTED)
    lines += [
        "| " + " | ".join(f"{row[name]:,}" if isinstance(row[name], int) else row[name] for name in names) + " |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    rows = run()
    (RESULTS / "steady_states.json").write_text(json.dumps(rows, indent=1) + "\n")
    (RESULTS / "steady_states.md").write_text(page(rows))
    print(page(rows))


if __name__ == "__main__":
    main()
