"""What `--set data.*` cannot change under a plan, told beside the figures."""

from collections.abc import Iterator

from gpu_plan.planner.workload.training import Workload

_SHARING = ("data.split_batches", "data.even_batches")
"""What is about sharing batches out (accelerate 1.15 data_loader.py: BatchSamplerShard, made for several only)."""


def loader_notes(workload: Workload, groups: int) -> tuple[str, ...]:
    """`groups`: ranks, or groups of ranks that compute one copy of the model, with samples of their own."""
    return tuple(_without_effect(workload, groups))


def _without_effect(workload: Workload, groups: int) -> Iterator[str]:
    stack = workload.stack.traits
    for key, _ in workload.settings:
        if not key.startswith("data.") or key == "data.padding":
            continue
        if stack.loop not in ("accelerate", "trainer"):
            yield f"--set {key} is without effect: no Accelerator reads it where stack {stack.name} runs the loop"
        elif groups == 1 and key in _SHARING:
            yield f"--set {key} is without effect: batches are shared out to one reader alone"
