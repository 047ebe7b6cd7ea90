"""A real Trainer that trains for two updates on the CPU under torch's memory profiler, and the figures of its spans.

What the data loader makes is on the host of a GPU, and left out with its frees: counted is what is allocated within a
micro step, and from the last one of an update until its gradients are gone.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category
from tests.support.cpu_reference import Reference, mark, measure
from tests.support.replay_cpu import counted

UPDATES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerFigures:
    """Bytes above what stood before the first span, by span: micro steps, and each update's step behind its own."""

    peaks: tuple[int, ...]
    ends: tuple[int, ...]


def train_for_real(
    model: nn.Module,
    rows: list[dict[str, torch.Tensor]],
    options: Mapping[str, Any],
    make_optimizer: Callable[[nn.Module], Any] | None = None,
) -> Reference:
    """`options` are TrainingArguments' own; the Trainer makes its optimizer itself unless one is given."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    passes, updates = iter(range(100)), iter(range(100))

    class Marked(Trainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            number = next(passes)
            mark(f"begin:{number}")
            found = super().training_step(*args, **kwargs)
            mark(f"end:{number}")
            return found

    class AtRest(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            mark(f"rest:{next(updates)}")

    with tempfile.TemporaryDirectory() as folder:
        chosen = {"optim": "adamw_torch", "per_device_train_batch_size": 2, **options}
        arguments = TrainingArguments(
            output_dir=folder, max_steps=UPDATES, save_strategy="no", logging_strategy="no", report_to=[],
            use_cpu=True, disable_tqdm=True, dataloader_pin_memory=False, **chosen,
        )  # fmt: skip
        optimizers = (None, None) if make_optimizer is None else (make_optimizer(model), None)
        trainer = Marked(model=model, args=arguments, train_dataset=rows, optimizers=optimizers)  # type: ignore[arg-type]
        trainer.add_callback(AtRest())
        return measure(trainer.train)


def measured_spans(reference: Reference, accumulation: int) -> TrainerFigures:
    """Figures of a real Trainer."""
    marks = reference.marks
    spans: list[tuple[int, int]] = []
    for update in range(UPDATES):
        numbers = range(update * accumulation, (update + 1) * accumulation)
        spans += [(marks[f"begin:{number}"], marks[f"end:{number}"]) for number in numbers]
        spans.append((spans[-1][1], marks[f"rest:{update}"]))
    sizes = counted(np.asarray([change.nbytes for change in reference.changes], dtype=np.int64))
    inside = np.zeros(len(sizes), dtype=bool)
    for start, end in spans:
        inside[start:end] = True
    outside: set[int] = set()
    for index, change in enumerate(reference.changes):
        if change.nbytes > 0:
            (outside.discard if inside[index] else outside.add)(change.pointer)
            sizes[index] *= inside[index]
        elif change.pointer in outside:
            sizes[index] = 0
            outside.discard(change.pointer)
    return _figures(sizes, spans)


def planned_spans(stream: RankStream, micro_batch: int) -> TrainerFigures:
    """Figures of a plan's stream."""
    sizes = counted(stream.requested(micro_batch))
    traced = stream.trace.num_tensors * stream.num_passes
    category = np.concatenate([np.tile(stream.trace.category, stream.num_passes), stream.category[traced:]])
    sizes = np.where(category == CATEGORY_INDEX[Category.INPUTS], 0, sizes)
    segments = range(1, stream.step_segments[UPDATES - 1] + 1)
    spans = [tuple(np.searchsorted(stream.event_segment, [one, one + 1]).tolist()) for one in segments]
    return _figures(stream.event_sign * sizes[stream.event_tensor], spans)


def _figures(signed: Any, spans: list[Any]) -> TrainerFigures:
    live = np.concatenate([[0], np.cumsum(signed)])
    base = int(live[spans[0][0]])
    return TrainerFigures(
        peaks=tuple(int(live[start : end + 1].max()) - base for start, end in spans),
        ends=tuple(int(live[end]) - base for _, end in spans),
    )
