"""How long it takes to judge one plan, and whether the search leaves out none that it should have looked at.

    .venv/bin/python -m benchmarks.answers.evaluation_speed

For Llama-3.1-8B on 8 H100 with the traces in hand, per family: one exact evaluation from nothing (the rank's stream
laid out, its tensors summed, the allocator simulated for both orders of addresses), then candidates a second that the
bound (tensors summed) and the exact path (allocator simulated) judge once the stream is known. Then the search's
choice is held against every candidate simulated: no candidate that fits may be faster than its family's plan. Writes
benchmarks/results/evaluation_speed.json and .md; processor times are of this machine, the best of a few.
"""

import json
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.places import RESULTS
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.search.search import Found, search
from gpu_plan.planner.search.training.candidates import Batch, Family, batches, families
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.workload.training import Attention, Optimizer, Precision, Stack, Workload

MODEL, GPUS, SEQ_LEN = "meta-llama/Llama-3.1-8B", "8xH100", 4096
BATCH = Batch(micro_batch=2, accumulation_steps=1)
_TIMES, _BOUNDS = 5, 100


def evaluator_of(provider: TraceProvider) -> Evaluator:
    """A fresh one: no rank's stream is laid out yet."""
    workload = Workload(
        seq_len=SEQ_LEN,
        precision=Precision("bf16-mixed"),
        optimizer=Optimizer("adamw"),
        attention=Attention.SDPA,
        stack=Stack.ACCELERATE,
    )
    return Evaluator(provider=provider, workload=workload, cluster=parse_cluster(GPUS), speed=RooflineModel())


def best_of(run: Callable[[], Any]) -> float:
    """Processor seconds of the fastest of a few runs."""
    times = []
    for _ in range(_TIMES):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def timed(provider: TraceProvider, family: Family) -> dict[str, Any]:
    """One line of the table."""

    def from_nothing() -> StepJudgement:
        evaluator = evaluator_of(provider)
        judgement = evaluator.simulate(evaluator.judge(family, BATCH))
        assert judgement.used_high_bytes
        return judgement

    judgement = from_nothing()
    warm = evaluator_of(provider)
    warm.judge(family, BATCH)
    bound, exact = (
        best_of(lambda: [warm.judge(family, BATCH) for _ in range(_BOUNDS)]) / _BOUNDS,
        best_of(lambda: warm.simulate(warm.judge(family, BATCH))),
    )
    return {
        "family": f"{family.strategy.title}, offload {family.offload}, checkpointing {family.checkpointing}",
        "events": len(judgement.plan.stream.event_sign),
        "from_nothing_seconds": best_of(from_nothing),
        "bounds_per_second": 1 / bound,
        "exact_per_second": 1 / exact,
    }


def held_against_all(evaluator: Evaluator, found: Found, tried: list[Family]) -> dict[str, Any]:
    """Every candidate simulated: those that fit and are faster than what the search printed for their family."""
    fitting = sorted((plan for plan in found.plans if plan.verdict == "fits"), key=lambda plan: plan.samples_per_second)
    chosen = {_key(plan.family): plan for plan in fitting}  # the fastest of each
    simulated, missed = 0, []
    for family in tried:
        for batch in batches(evaluator.workload, evaluator.cluster.world_size):
            judgement = evaluator.judge(family, batch)
            if judgement.verdict == "no":
                break  # tensors alone exceed the device, and more samples never take less
            exact = evaluator.simulate(judgement)
            simulated += 1
            plan = chosen.get(_key(family))
            if exact.verdict == "fits" and (plan is None or exact.samples_per_second > plan.samples_per_second):
                missed.append({"family": _key(family), "micro_batch": batch.micro_batch})
    return {
        "printed": len(found.plans),
        "printed_simulated": sum(plan.simulated is not None for plan in found.plans),
        "candidates_simulated": simulated,
        "faster_and_fitting_but_not_printed": missed,
    }


def _key(family: Family) -> str:
    return f"{family.strategy.name} {family.offload} {family.checkpointing}"


def splits(evaluator: Evaluator, family: Family) -> bool:
    """Whether the model's class has what the family asks of it: the search asks where a bound leaves it a chance."""
    try:
        evaluator.judge(family, BATCH)
    except CannotSplitError:
        return False
    return True


def run() -> dict[str, Any]:
    """All figures."""
    provider = TraceProvider(source=resolve(MODEL), device=device_kind(parse_cluster(GPUS).gpu), attention="sdpa")
    evaluator = evaluator_of(provider)
    found = search(TrainingTask(evaluator))
    refused = {line.split(":")[0] for line in found.inapplicable}
    known = families(evaluator.workload, evaluator.cluster, provider.spec().can_checkpoint)
    # Ranks that share a copy take traces of their own, which the search makes only where they could win.
    alone = [family for family in known if family.copy_ranks == 1 and family.layout is None]
    tried = [family for family in alone if family.strategy.title not in refused and splits(evaluator, family)]
    return {
        "model": MODEL,
        "gpus": GPUS,
        "seq_len": SEQ_LEN,
        "micro_batch": BATCH.micro_batch,
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "families": [timed(provider, family) for family in tried],
        "search": held_against_all(evaluator, found, tried),
    }


def markdown(found: dict[str, Any]) -> str:
    """The page."""
    lines, against = found["families"], found["search"]
    slowest = max(line["from_nothing_seconds"] for line in lines)
    missed = against["faster_and_fitting_but_not_printed"]
    rows = [
        f"| {line['family']} | {line['events']:,} | {line['from_nothing_seconds']:.3f} "
        f"| {line['bounds_per_second']:,.0f} | {line['exact_per_second']:,.0f} |"
        for line in lines
    ]
    return (
        "\n".join(
            [
                "# One plan judged: how long it takes\n",
                f"{found['model']} on {found['gpus']}, {found['seq_len']} tokens, micro batch {found['micro_batch']},"
                f" traces in hand ({found['machine']}). Written by `python -m benchmarks.answers.evaluation_speed`.\n",
                f"One exact evaluation from nothing, the allocator simulated for both orders of addresses: at most"
                f" {slowest:.2f} s.\n",
                "| family | events | exact, from nothing (s) | bounds a second | exact plans a second |",
                "|---|---|---|---|---|",
                *rows,
                "",
                f"Of the {against['printed']} plans that the search printed {against['printed_simulated']} were"
                f" simulated. Of {against['candidates_simulated']} candidates simulated one by one, {len(missed)} fit"
                " and are faster than their family's plan.",
            ]
        )
        + "\n"
    )


def main() -> int:
    """Writes both result files."""
    try:
        found = run()
    except PlanError as problem:
        print(problem, file=sys.stderr)
        return 2
    (RESULTS / "evaluation_speed.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "evaluation_speed.md").write_text(markdown(found))
    print(markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
