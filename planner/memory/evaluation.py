"""A run that evaluates: after two iterations of training, batches are evaluated, and their logits may be kept.

Two batches are laid out: the first, and the last, before which as many logits are kept as there will ever be. What
transformers keeps is mirrored from trainer.py: evaluation_loop and trainer_pt_utils.py: EvalLoopContainer,
torch_pad_and_concatenate: gathered logits are concatenated to those before them, so that both and their sum stand.
"""

from dataclasses import replace

import numpy as np

from gpu_plan.planner.memory.appended import Appended, joined, next_segment
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.memory.stream.traced import carried_storages
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category

_LOSS = 4
"""Bytes of one loss."""
_STANDING = ("cuBLAS workspace", "DDP bucket")
"""Labels of what training has made already: torch rebuilds DDP's buckets under gradients alone (torch/nn/parallel/
distributed.py: _pre_forward)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """What is evaluated."""

    batch: int
    """Samples of one forward pass on one rank."""
    batches: int
    """Passes until what is kept leaves the device."""
    ranks: int
    """That logits are gathered from."""
    keeps: bool
    """Whether logits are gathered and kept."""
    concatenates: bool
    """Whether what is kept is one tensor, copied for every batch; otherwise it is a list."""


def with_evaluation(training: RankStream, evaluation: RankStream, asked: Evaluated) -> RankStream:
    """`training` followed by an evaluation.

    `evaluation` is the same rank's stream of a step without backward: its second pass is what a batch takes.
    """
    added = Appended(len(training.fixed))
    run = _Pass(evaluation, asked.batch)
    trained = carried_storages(training.trace) + training.trace.num_tensors * (training.num_passes - 1)
    if not asked.concatenates:
        # A loop of one's own uses its names again; the Trainer's evaluation has names of its own.
        run.inputs = _batch_of(training)
    last = run.play(added, trained.tolist())
    kept: list[int] = []
    if asked.keeps:
        kept, last = _keep(added, last, run, asked)
    last = run.play(added, last)
    if asked.keeps and kept:
        # The losses are put to the others first.
        new = _logits(added, _losses(asked, asked.batches), "losses kept")
        added.free(kept.pop())
        kept.append(new)
    if asked.keeps:
        _add(added, last, run, asked)
    for tensor in (*kept, *last, *run.inputs):
        added.free(tensor)
    return replace(joined(training, added), evaluation_segment=next_segment(training))


def _keep(added: Appended, held: list[int], run: "_Pass", asked: Evaluated) -> tuple[list[int], list[int]]:
    """Everything kept before the last batch, and what the loop's variable names beside: the batch before that.

    Of two batches the first is kept as it is. Labels and losses are kept as well.
    """
    gathered, before = run.outputs_bytes * asked.ranks, asked.batches - 1
    kept = [_logits(added, gathered * before, "logits kept")] if before else []
    labels = run.label_bytes * asked.ranks
    if before:
        kept.append(_logits(added, labels * before, "labels kept"))
        kept.append(_logits(added, _losses(asked, before), "losses kept"))
    named = [_logits(added, gathered, "logits of the batch before")] if before > 1 else []
    named += [_logits(added, labels, "labels of the batch before")] if before > 1 else []
    for tensor in held:
        added.free(tensor)
    return kept, named


def _add(added: Appended, held: list[int], run: "_Pass", asked: Evaluated) -> None:
    """The last batch's logits are gathered and put to the others; then all goes to the host."""
    gathered = run.outputs_bytes * asked.ranks
    new = [_logits(added, gathered, "logits of all ranks")] if asked.ranks > 1 else []
    if asked.ranks > 1:
        for tensor in held:
            added.free(tensor)
        held.clear()
    if asked.concatenates and asked.batches > 1:
        new.append(_logits(added, gathered * asked.batches, "logits kept, copied"))
    for tensor in new:
        added.free(tensor)


def _losses(asked: Evaluated, batches: int) -> int:
    return _LOSS * asked.batch * asked.ranks * batches


def _logits(added: Appended, size: int, label: str) -> int:
    return added.alloc(size, CATEGORY_INDEX[Category.ACTIVATIONS], label, "")


def _batch_of(training: RankStream) -> list[int]:
    """The last batch of training, which its loop still names."""
    last = training.event_segment <= training.step_segments[-1]
    alive = np.bincount(training.event_tensor[last], weights=training.event_sign[last], minlength=len(training.fixed))
    return np.flatnonzero((alive > 0) & (training.category == CATEGORY_INDEX[Category.INPUTS])).tolist()


class _Pass:
    """The second pass of a stream without backward, to be played again and again."""

    def __init__(self, stream: RankStream, batch: int) -> None:
        self._stream = stream
        trace = stream.trace
        segments = stream.pass_segments
        inside = (stream.event_segment == segments[-1]) & ~stream.event_in_backward
        self._signs, self._tensors = stream.event_sign[inside], stream.event_tensor[inside]
        self._sizes = stream.requested(batch)
        self._carried = frozenset((carried_storages(trace) + trace.num_tensors * (stream.num_passes - 1)).tolist())
        before = (carried_storages(trace) + trace.num_tensors * (stream.num_passes - 2)).tolist()
        self._before = frozenset(before)
        carried = [int(self._sizes[tensor]) for tensor in self._carried]
        self.outputs_bytes = sum(size for size in carried if size > _LOSS)
        self.label_bytes = sum(per * batch + fixed for name, per, fixed in trace.inputs if name == "labels")
        self.inputs: list[int] = []
        """The batch that the loop's variable names."""

    def play(self, added: Appended, held: list[int]) -> list[int]:
        """One batch; `held` goes where the loop's variable is bound anew. Returns what it then holds."""
        placed: dict[int, int] = {}
        for sign, tensor in zip(self._signs.tolist(), self._tensors.tolist(), strict=True):
            if sign > 0:
                made = self._made(added, tensor)
                if made is not None:
                    placed[tensor] = made
            elif tensor in placed:
                added.free(placed.pop(tensor))
            elif tensor in self._before:
                for other in held:
                    added.free(other)
                held = []
            elif self._is_input(tensor):
                for other in self.inputs:
                    added.free(other)
                self.inputs = []
        outputs = [own for tensor, own in placed.items() if tensor in self._carried]
        self.inputs = [*self.inputs, *(own for tensor, own in placed.items() if self._is_input(tensor))]
        rest = (own for t, own in placed.items() if t not in self._carried and not self._is_input(t))
        for other in (*held, *rest):
            added.free(other)
        return outputs

    def _is_input(self, tensor: int) -> bool:
        return int(self._stream.category[tensor]) == CATEGORY_INDEX[Category.INPUTS]

    def _made(self, added: Appended, tensor: int) -> int | None:
        stream = self._stream
        trace = stream.trace
        own = tensor - trace.num_tensors * stream.num_passes
        if own >= 0:
            label, module = stream.labels[own], stream.label_modules[own]
            if label.startswith(_STANDING):
                return None
        else:
            index = tensor % trace.num_tensors
            label = trace.operator_names[int(trace.tensor_operator[index])]
            module = trace.modules[int(trace.tensor_module[index])]
        size, category = int(self._sizes[tensor]), int(stream.category[tensor])
        return added.alloc(size, category, label, module, int(stream.cuda_stream[tensor]))
