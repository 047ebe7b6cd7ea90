"""What is cut short against the whole of it: folded traces against full ones, the compiled allocator against the plain.

    .venv/bin/python -m benchmarks.answers.equality [folded | compiled] [--quick]

Folded: 20 architectures of the catalog at depths that fold, four variants each, one sample or two, and models of random
depth, width and heads: every event, storage, operator, byte, FLOP and reference of both traces. Compiled: every run of
the allocator that a search makes of the golden jobs (those whose counts are held) is made again by the plain loop:
every event's block and address, every call of the driver, every retry. Writes benchmarks/results/equality.json and .md;
exit code 1 where anything differs. One half alone: the other stays as it was written. `--quick`: a few of each.
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.answers.counts import JOBS, counting
from benchmarks.places import RESULTS
from gpu_plan.planner.job.run import run_job
from gpu_plan.planner.memory.allocator.compiled import CompiledRun
from gpu_plan.planner.memory.allocator.replay import AllocatorResult, Run, Taken
from gpu_plan.planner.options.request import Request

RANDOM_MODELS = 24
LONGEST = 100_000
"""Events of a run that the plain loop makes again; of longer ones it would take minutes."""
_plain = Run.result
_ARRAYS = ("charged", "addresses", "tensors")


def folded(quick: bool) -> Iterator[tuple[str, dict[str, int]]]:
    """What was compared, by kind: traces, events, tensors and operators. AssertionError names what differs."""
    from tests.trace.test_fold_equals_full import MODELS, VARIANTS

    catalog: Counter[str] = Counter()
    for deep in list(MODELS.values())[: 2 if quick else None]:
        for at, variant in enumerate(VARIANTS):
            # Two of the four with one sample, two with two, the other way round than `make prove` has them.
            catalog.update(_same(deep, variant, 1 + at % 2))
    yield f"{len(MODELS)} architectures of the catalog, {len(VARIANTS)} variants each", catalog
    dice, found = random.Random(19), Counter[str]()
    for _ in range(3 if quick else RANDOM_MODELS):
        found.update(_same(_random(dice), dice.choice(list(VARIANTS)), dice.choice((1, 2, 3, 5))))
    yield "models of random depth, width and heads", found


def _random(dice: random.Random) -> Any:
    """A small model of one of six families: 8 to 24 layers, one to eight heads of 16 to 64."""
    from tests.trace.test_fold_equals_full import Deep

    heads = dice.choice((2, 4, 8))
    head, layers = dice.choice((16, 32, 64)), dice.randint(8, 24)
    sizes = {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": dice.choice([one for one in (1, 2, 4, 8) if heads % one == 0 and one <= heads]),
        "head_dim": head,
        "hidden_size": heads * head,
        "intermediate_size": 16 * dice.randint(2, 40),
        "vocab_size": dice.randint(100, 1000),
        "pad_token_id": None,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    model = dice.choice(
        (
            "meta-llama/Llama-3.1-8B",
            "Qwen/Qwen2.5-7B",
            "Qwen/Qwen3-8B",
            "mistralai/Mistral-7B-v0.1",
            "google/gemma-2-2b",
            "mistralai/Mixtral-8x7B-v0.1",
        )
    )
    return Deep(model=model, changes=sizes | {"layer_types": None}, folds={}, seq_len=dice.choice((16, 33, 64, 100)))


def _same(deep: Any, variant: str, micro_batch: int) -> dict[str, int]:
    from gpu_plan.planner.model.build.construct import build_model
    from tests.support.same_trace import assert_same_trace
    from tests.trace.test_fold_equals_full import _traced

    model = build_model(deep.config())
    tracer, short = _traced(model, deep, variant, micro_batch, fold=True)
    _, full = _traced(model, deep, variant, micro_batch, fold=False)
    assert_same_trace(short, full)
    layers = sum(fold.period * fold.units for fold in tracer.folds())
    return {
        "traces": 1,
        "layers folded": layers,
        "events": len(full.kind),
        "tensors": full.num_tensors,
        "operators": len(full.op_name),
    }


def compiled(job: str) -> dict[str, int]:
    """Runs and events of a golden job's search that were made again by the plain loop, and those that were too long."""
    model, gpus, words = JOBS[job]
    request = Request(
        model=model, gpus=gpus, words=words, settings=(), pinned=False, explain=False, trust_remote_code=False,
        revision=None, use_cache=False, command="",
    )  # fmt: skip
    found: Counter[str] = Counter({"runs": 0, "events": 0, "longer": 0})
    with counting(), _again(found):
        run_job(request, lambda _: None)
    return dict(found)


@contextmanager
def _again(found: Counter[str]) -> Iterator[None]:
    """Every run of the compiled allocator that happens meanwhile, made again and compared."""
    real_result, real_taken = Run.result, Run.taken

    def result(run: Run, capacity: int | None, descending: bool, returns: Any) -> AllocatorResult:
        made = real_result(run, capacity, descending, returns)
        _compare(run, made, capacity, descending, returns, found)
        return made

    def taken(run: Run, capacity: int | None, descending: bool, returns: Any, blocks: Any = None) -> Taken:
        made = real_taken(run, capacity, descending, returns, blocks)
        whole = real_result(run, capacity, descending, returns)
        assert (made.event.tolist(), made.change.tolist()) == (
            whole.driver.event.tolist(),
            whole.driver.change.tolist(),
        )
        assert (made.peak_reserved_bytes, made.reserved_at_end) == (whole.peak_reserved_bytes, whole.reserved_at_end)
        assert (made.retried_at, made.complete) == (whole.retried_at, whole.oom_at is None)
        assert blocks is None or np.array_equal(blocks, whole.block_bytes(len(blocks)))
        _compare(run, whole, capacity, descending, returns, found)
        return made

    with patch.object(Run, "result", result), patch.object(Run, "taken", taken):
        yield


def _compare(
    run: Run, made: AllocatorResult, capacity: int | None, descending: bool, returns: Any, found: Counter[str]
) -> None:
    if not isinstance(run._compiled, CompiledRun):
        return
    if run.num_events > LONGEST:
        found["longer"] += 1
        return
    plain = Run(run._signs, run._tensors, run._sizes, run._streams, run._settings, plain=True)
    other = _plain(plain, capacity, descending, returns)
    for name in _ARRAYS:
        assert np.array_equal(getattr(made, name), getattr(other, name)), name
    none: dict[str, Any] = dict.fromkeys(_ARRAYS)
    assert replace(made, **none) == replace(other, **none)
    found.update({"runs": 1, "events": run.num_events})


def markdown(found: dict[str, Any]) -> str:
    """The page."""
    kinds = ("traces", "layers folded", "events", "tensors", "operators")
    traces = [
        f"| {what} | {' | '.join(f'{counts[kind]:,}' for kind in kinds)} |"
        for what, counts in found.get("folded", {}).items()
    ]
    runs = [
        f"| {job} | {counts['runs']:,} | {counts['events']:,} | {counts['longer']:,} |"
        for job, counts in found.get("compiled", {}).items()
    ]
    return "\n".join(
        [
            "# Cut short, and the whole of it\n",
            "Written by `python -m benchmarks.answers.equality`, which ends with exit code 1 where anything differs.\n",
            "Traces that run two units at either end of repeated layers and copy the rest, against traces that run"
            " every layer: equal in every event, storage, operator, byte, FLOP and reference.\n",
            f"| models | {' | '.join(kinds)} |",
            "|---" * (len(kinds) + 1) + "|",
            *traces,
            "",
            "Runs of the compiled allocator that the searches of the golden jobs make, made again by the plain loop:"
            " equal in every event's block and address, every call of the driver and every retry.\n",
            f"| job | runs | events | longer than {LONGEST:,} events, not made again |",
            "|---|---|---|---|",
            *runs,
            "",
        ]
    )


def main() -> int:
    """Writes both result files; 1 where anything differs."""
    quick, path = "--quick" in sys.argv, RESULTS / "equality.json"
    halves = [half for half in ("folded", "compiled") if half in sys.argv] or ["folded", "compiled"]
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() and not quick else {}
    try:
        for half in halves:
            if half == "folded":
                found[half] = dict(folded(quick))
            else:
                found[half] = {job: compiled(job) for job in list(JOBS)[: 1 if quick else None]}
            if not quick:
                path.write_text(json.dumps(found, indent=1) + "\n")
                (RESULTS / "equality.md").write_text(markdown(found))
    except AssertionError as difference:
        print(f"different: {difference}", file=sys.stderr)
        return 1
    print(markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
