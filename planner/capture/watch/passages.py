"""What runs before the step in every iteration: a rollout, log-probabilities. Of each, what stands at its own peak."""

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import nn

from gpu_plan.planner.capture.request import Passage, Stood
from gpu_plan.planner.capture.watch.names import DECODE, PREFILL, SCORING
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.trace.events import CATEGORIES, Category, Kind
from gpu_plan.planner.trace.inputs.known import KnownValues
from gpu_plan.planner.trace.kernels.temporaries import KernelProfile
from gpu_plan.planner.trace.recording.host_reads import HostReads
from gpu_plan.planner.trace.recording.modules import ModuleTracker
from gpu_plan.planner.trace.recording.recorder import RawTensor, RawTrace, Recorder

_ROWS = (2, 3)
"""Samples of the two rollouts that are run: a single one is computed otherwise by some models."""
_TOKEN = 5
_ROOT = 0


@dataclass(slots=True)
class Passages:
    """Those that were recorded so far, by model and name. `between` closes the answers that stand between passes."""

    known: KnownValues
    reads: HostReads
    profile: KernelProfile
    origin: Callable[[], str]
    prepare: Callable[[nn.Module], None] = lambda _: None
    between: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    found: dict[tuple[int, str], tuple[nn.Module, Passage]] = field(default_factory=dict)
    busy: bool = False

    def run(self, model: nn.Module, call: Callable[[], Any], samples: int) -> Any:
        """`call()`, a pass without gradients, recorded where it is the first of its model."""
        if self.busy or (id(model), SCORING) in self.found or next(model.parameters()).device.type != "meta":
            return call()
        with self._recording(model) as recorder:
            out = call()
        standing = tuple(_stood(tensor) for tensor in _at_peak(recorder.finish(), first=0))
        self._keep(model, Passage(name=SCORING, rows=samples, standing=standing))
        return out

    def roll_out(self, model: Any, generate: Callable[..., Any], ids: torch.Tensor, config: Any, tokens: int) -> bool:
        """Runs the model's own `generate` at its two ends: over the prompt, and at the last token. Whether it ran."""
        if (id(model), DECODE) in self.found or ids.device.type != "meta":
            return (id(model), DECODE) in self.found
        prompt = ids.shape[1]
        with contextlib.suppress(InputError):
            for name, length, steps in ((PREFILL, prompt, 1), (DECODE, prompt + tokens - 1, 2)):
                runs = [self._rolled(model, generate, config, (rows, length), steps) for rows in _ROWS]
                standing = _over_rows(*runs)
                if standing is None:
                    return False
                self._keep(model, Passage(name=name, rows=0, standing=standing))
            return True
        return False

    def _rolled(
        self, model: Any, generate: Callable[..., Any], config: Any, shape: tuple[int, int], steps: int
    ) -> list[RawTensor]:
        """What stands at the peak of the last of so many passes, the cache told apart."""
        own, standard = copy.deepcopy(config), copy.deepcopy(model.generation_config)
        for one in (own, standard):  # what one leaves open the other says
            one.max_new_tokens, one.max_length, one.eos_token_id = steps, None, None
        ids = torch.full(shape, _TOKEN, dtype=torch.int64)
        given = {"input_ids": ids.to("meta"), "attention_mask": torch.ones_like(ids).to("meta")}
        for name, value in (("input_ids", ids), ("attention_mask", torch.ones_like(ids))):
            self.known.put(given[name], value)
        self.busy = True
        try:
            replaced = mock.patch.object(model, "generation_config", standard)
            with replaced, self._recording(model) as recorder, _marked(model, recorder, steps):
                recorder.know(given.values())  # the trainer's, and at the last token longer than a prompt
                generate(model, **given, generation_config=own)
        finally:
            self.busy = False
        raw = recorder.finish()
        entered = [at for at, kind in enumerate(raw.kind) if kind == Kind.ENTER and raw.subject[at] == _ROOT]
        return _at_peak(raw, first=entered[-1] if steps > 1 and entered else 0)

    @contextlib.contextmanager
    def _recording(self, model: nn.Module) -> Iterator[Recorder]:
        if any(parameter.requires_grad for parameter in model.parameters()):
            self.prepare(model)
        tracker = ModuleTracker(model)
        recorder = Recorder(tracker, self.profile, self.reads, origin=self.origin)
        recorder.know([*model.parameters(), *model.buffers()])
        with self.between(), tracker, recorder:
            yield recorder

    def _keep(self, model: nn.Module, passage: Passage) -> None:
        self.found[id(model), passage.name] = (model, passage)

    def of(self, models: list[nn.Module]) -> tuple[Passage, ...]:
        """Those of the job's models, each with its model's number."""
        numbers = {id(part): number for number, model in enumerate(models) for part in model.modules()}
        return tuple(
            Passage(name=one.name, model=numbers[id(model)], rows=one.rows, standing=one.standing)
            for model, one in self.found.values()
            if id(model) in numbers
        )


@contextlib.contextmanager
def _marked(model: nn.Module, recorder: Recorder, steps: int) -> Iterator[None]:
    """Keys and values are told apart as they are given back. InputError where there are more passes than `steps`."""
    from gpu_plan.planner.trace.generation.record import cached_tensors

    left = steps

    def note(_: nn.Module, args: Any, outputs: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise InputError("generation does not end where it is told to")
        recorder.categorise(cached_tensors(outputs), Category.KV_CACHE)

    handle = model.register_forward_hook(note)
    try:
        yield
    finally:
        handle.remove()


def _at_peak(raw: RawTrace, first: int) -> list[RawTensor]:
    """What stands when most does, from event `first` on; in the order in which it was made."""
    alive: dict[int, RawTensor] = {}
    most, found, live = -1, [], 0
    for at, (kind, subject) in enumerate(zip(raw.kind, raw.subject, strict=True)):
        if kind == Kind.ALLOC:
            alive[subject] = raw.tensors[subject]
            live += raw.tensors[subject].nbytes
        elif kind == Kind.FREE and subject in alive:
            live -= alive.pop(subject).nbytes
        if at >= first and live > most:
            most, found = live, list(alive.values())
    return found


def _stood(tensor: RawTensor, per_row: int = 0) -> Stood:
    return Stood(
        fixed=tensor.nbytes - per_row * _ROWS[0],
        per_row=per_row,
        category=str(CATEGORIES[tensor.category]),
        what=f"{tensor.operator} {list(tensor.shape)} {tensor.dtype}",
    )


def _over_rows(fewer: list[RawTensor], more: list[RawTensor]) -> tuple[Stood, ...] | None:
    """Bytes as a line over the rows; None where the two runs are not of one kind."""
    if [tensor.operator for tensor in fewer] != [tensor.operator for tensor in more]:
        return None
    slopes = [large.nbytes - small.nbytes for small, large in zip(fewer, more, strict=True)]
    return tuple(_stood(small, slope) for small, slope in zip(fewer, slopes, strict=True))
