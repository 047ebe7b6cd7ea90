"""Traced against real activation bytes on the CPU, for many architectures and for changes between runs.

    .venv/bin/python -m benchmarks.real.cpu_activations

writes benchmarks/results/cpu_activations.json and .md. The rules of the comparison stand in
tests/support/replay_cpu.py and tests/support/cpu_reference.py.
"""

import contextlib
import json
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import torch
import transformers

from benchmarks.places import RESULTS
from gpu_plan.planner.workload.training import Attention, Checkpointing
from tests.accuracy.architectures import ARCHITECTURES
from tests.accuracy.cases import THREADS, Case, reference_of, trace_of
from tests.support.replay_cpu import (
    Figures,
    measured,
    replayed,
    replayed_second,
    same_stream,
    unmatched,
)


def compare(case: Case) -> dict[str, Any]:
    """One row: figures of both sides, raw and counted, and what only one of them allocated."""
    trace, reference = trace_of(case, fold=False), reference_of(case)
    folded = trace_of(case)
    size = case.micro_batch
    return {
        "case": case.label(),
        "architecture": case.architecture,
        "kind": ARCHITECTURES[case.architecture].kind,
        "real": asdict(measured(reference)),
        "traced": asdict(replayed(trace, size)),
        "traced_folded": asdict(replayed(folded, size)),
        "real_all_bytes": asdict(measured(reference, raw=True)),
        "traced_all_bytes": asdict(replayed(trace, size, raw=True)),
        "same_events_in_order": same_stream(trace, size, reference),
        "allocations_on_one_side": unmatched(trace, size, reference),
    }


def second(case: Case, *, accumulate: bool) -> dict[str, Any]:
    """The second iteration of the loop."""
    reference = reference_of(case, iterations=2, accumulate=accumulate)
    replay = replayed_second(trace_of(case), case.micro_batch, accumulate=accumulate)
    return {
        "case": f"{case.label()}, second iteration, {'accumulating' if accumulate else 'gradients freed'}",
        "real": asdict(measured(reference, iteration=1)),
        "traced": asdict(replay),
    }


def delta(name: str, change: str, other: Case) -> dict[str, Any]:
    """How the peak and the held bytes change from the architecture's base case to `other`."""
    base = Case(architecture=name)
    sides = {}
    for side, figures in (("real", _real), ("traced", _traced)):
        before, after = figures(base), figures(other)
        sides[side] = {
            "peak": after.peak - before.peak,
            "forward_end": after.forward_end - before.forward_end,
        }
    return {"architecture": name, "change": change, **sides}


def _real(case: Case) -> Figures:
    return measured(reference_of(case))


def _traced(case: Case) -> Figures:
    return replayed(trace_of(case), case.micro_batch)


def deltas(name: str) -> Iterator[dict[str, Any]]:
    base = Case(architecture=name)
    yield delta(name, "sequence 48 -> 96", replace(base, seq_len=96))
    vocab = ARCHITECTURES[name].config().get("vocab_size")
    if isinstance(vocab, int):
        yield delta(name, f"vocabulary {vocab} -> {2 * vocab}", replace(base, changes={"vocab_size": 2 * vocab}))
    yield delta(name, "checkpointing off -> on", replace(base, checkpointing=Checkpointing.FULL))


def run() -> dict[str, Any]:
    cases = [Case(architecture=name, attention=a) for name in ARCHITECTURES for a in (Attention.SDPA, Attention.EAGER)]
    cases += [Case(architecture=name, checkpointing=Checkpointing.FULL) for name in ARCHITECTURES]
    halves = ("llama-3", "mixtral", "bert", "t5")
    half = [Case(architecture=name, weights="bfloat16") for name in halves]
    seconds = [Case(architecture=name) for name in ("llama-3", "qwen2", "mixtral", "t5")]
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "machine": f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, {THREADS} thread",
        "steps": [compare(case) for case in cases],
        "bf16_weights": [compare(case) for case in half],
        "second_iteration": [second(case, accumulate=a) for case in seconds for a in (False, True)],
        "deltas": [row for name in ARCHITECTURES for row in deltas(name)],
    }


def markdown(result: dict[str, Any]) -> str:
    """The result for people."""
    steps, half = result["steps"], result["bf16_weights"]
    lines = [
        "# Activations: traced against real, on CPU",
        "",
        f"torch {result['torch']}, transformers {result['transformers']}, {result['machine']}. "
        "Written by `python -m benchmarks.real.cpu_activations`.",
        "",
        f"- {_equal(steps)} of {len(steps)} fp32 steps: peak, bytes at the end of forward and of backward equal.",
        f"- {sum(s['same_events_in_order'] for s in steps)} of them: every allocation and free equal, in order.",
        f"- {_equal(half)} of {len(half)} steps with bf16 weights equal.",
        f"- {_equal(result['second_iteration'])} of {len(result['second_iteration'])} second iterations equal.",
        f"- {_equal(result['deltas'])} of {len(result['deltas'])} changes (sequence, vocabulary, checkpointing) equal.",
        "",
        "| case | peak real | difference | end of forward real | difference | events in order |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for row in [*steps, *half]:
        real, traced = row["real"], row["traced"]
        lines.append(
            f"| {row['case']} | {real['peak']} | {traced['peak'] - real['peak']} | {real['forward_end']} "
            f"| {traced['forward_end'] - real['forward_end']} | {'same' if row['same_events_in_order'] else 'differ'} |"
        )
    return "\n".join([*lines, "", *NOTES, ""])


def _equal(rows: list[dict[str, Any]]) -> int:
    return sum(row["real"] == row["traced"] for row in rows)


NOTES = (
    "Left out on both sides: storages of at most 16 bytes (Python numbers, which on the CPU become tensors) and the "
    "CPU generator's state that checkpointing saves. The JSON has the figures with them too.",
    "",
    "Events that differ have these causes: oneDNN's reordered copies and workspaces (convolution, 16-bit matrix "
    "products, GELU backward of operands in different layouts); transformers counts tokens per expert in fp32 on the "
    "CPU and in int32 elsewhere; copies that stand just before an output here and just after it there.",
    "With bf16 weights the CPU's layer_norm keeps mean and reciprocal deviation in bf16, CUDA's in fp32 as traced, "
    "and oneDNN's workspaces can stand at the peak.",
)


@contextlib.contextmanager
def _profiler_silenced() -> Iterator[None]:
    """Kineto prints a line per profile to the file descriptor."""
    sys.stderr.flush()
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(null)


def main() -> None:
    with _profiler_silenced():
        result = run()
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "cpu_activations.json").write_text(json.dumps(result, indent=1) + "\n")
    text = markdown(result)
    (RESULTS / "cpu_activations.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
