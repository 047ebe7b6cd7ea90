"""What one real training step asks of the CPU allocator, as torch's profiler saw it.

No dispatch mode is active and nothing of the planner runs inside the step: the reference is independent of the
recorder. Sizes are those requested; the CPU allocator does not round what it reports.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from gpu_plan.planner.trace.inputs.batch import TrainingBatch, training_loss
from gpu_plan.planner.workload.training import Stack

_MARK = "mark:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One allocation (positive bytes) or free (negative), and the operators it happened in."""

    nbytes: int
    path: tuple[str, ...]
    pointer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Allocator events of one step in time order, and where its points lie among them."""

    changes: tuple[Change, ...]
    marks: dict[str, int]
    """Name of the point to the number of changes before it: `begin`, `forward_end`, `bound`, `backward_end`; of
    the second iteration `begin:1` and so on.
    """


def measure(body: Callable[[], Any]) -> Reference:
    """Runs `body` under the memory profiler; what it returns is dropped after the profile has ended."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            held = body()
        found = reference_from(profiler)
    finally:
        if enabled:
            gc.enable()
    del held
    return found


def reference_from(profiler: Any) -> Reference:
    """Allocator events and marks of a finished profile."""
    found: list[tuple[int, str, Change | None]] = []
    for root in profiler.profiler.kineto_results.experimental_event_tree():
        _walk(root, (), found)
    found.sort(key=lambda item: item[0])
    changes: list[Change] = []
    marks: dict[str, int] = {}
    for _, name, change in found:
        if change is None:
            marks[name] = len(changes)
        else:
            changes.append(change)
    return Reference(changes=tuple(changes), marks=marks)


def _walk(event: Any, path: tuple[str, ...], found: list[tuple[int, str, Change | None]]) -> None:
    if event.tag.name == "Allocation":
        fields = event.extra_fields
        change = Change(nbytes=fields.alloc_size, path=path, pointer=fields.ptr or 0)
        found.append((event.start_time_ns, "", change))
        return
    if event.name.startswith(_MARK):
        found.append((event.start_time_ns, event.name.removeprefix(_MARK), None))
    for child in event.children:
        _walk(child, (*path, event.name), found)


def mark(name: str) -> None:
    """Notes a point of the step in the profile."""
    with record_function(_MARK + name):
        pass


def real_twin(meta_model: Any, dtype: torch.dtype, attention: str) -> nn.Module:
    """The same class and config with random weights on the CPU, in training mode."""
    torch.manual_seed(0)
    kwargs = {"attn_implementation": "eager"} if attention == "eager" else {}
    model: nn.Module = type(meta_model)._from_config(meta_model.config, dtype=dtype, **kwargs)
    return model.train()


def real_inputs(batch: TrainingBatch) -> dict[str, Any]:
    """The batch with true integers and random floating-point values."""
    generator = torch.Generator().manual_seed(1)
    inputs: dict[str, Any] = {}
    for name, value in batch.tensors.items():
        if not isinstance(value, torch.Tensor):
            inputs[name] = value
        elif name in batch.values:
            inputs[name] = batch.values[name].clone()
        else:
            inputs[name] = torch.randn(value.shape, generator=generator).to(value.dtype)
    return inputs


def training_step(
    model: nn.Module,
    inputs: dict[str, Any],
    *,
    stack: Stack = Stack.PLAIN,
    iterations: int = 1,
    accumulate: bool = False,
) -> Callable[[], Any]:
    """The loop's body as a user writes it, with the points of interest marked.

    From the second iteration on, `outputs` and `loss` are still bound when forward runs, and gradients were freed
    (`zero_grad`) unless the loop accumulates.
    """

    def body() -> Any:
        outputs = loss = None
        for iteration in range(iterations):
            suffix = f":{iteration}" if iteration else ""
            mark("begin" + suffix)
            outputs = model(**inputs)
            mark("forward_end" + suffix)
            loss = training_loss(model, outputs)
            if stack.traits.drops_outputs:
                outputs = None
            mark("bound" + suffix)
            if stack is Stack.ACCELERATE:
                scaled = loss / 1
                scaled.backward()
                del scaled
            else:
                loss.backward()
            mark("backward_end" + suffix)
            if iteration + 1 < iterations and not accumulate:
                model.zero_grad()
        return outputs, loss

    return body
