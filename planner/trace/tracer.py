"""Traces of one model: builds it once, records the variants that are asked for, expands what was folded."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from gpu_plan.planner.errors import InputError, PlanError
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.folding.expand import expand
from gpu_plan.planner.trace.folding.fold import folds_of
from gpu_plan.planner.trace.folding.units import CannotFoldError, Fold
from gpu_plan.planner.trace.inputs.batch import TrainingBatch
from gpu_plan.planner.trace.inputs.padding import padded
from gpu_plan.planner.trace.kernels.temporaries import KernelProfile
from gpu_plan.planner.trace.layout import layout_of
from gpu_plan.planner.trace.parallel.context import shared_out
from gpu_plan.planner.trace.parallel.stages import stage_inputs
from gpu_plan.planner.trace.recording.between import ends_suffice
from gpu_plan.planner.trace.recording.collection import no_collection, one_thread
from gpu_plan.planner.trace.recording.fit import NO_LOOPS, Loops, Recording, fit, lie_exactly, signature
from gpu_plan.planner.trace.recording.recorded import Line, Recorded
from gpu_plan.planner.trace.recording.repeats.bodies import UnlikeError
from gpu_plan.planner.trace.recording.repeats.grown import FEW, MORE, MOST, grown
from gpu_plan.planner.trace.setup.parameters import buffer_sizes, parameter_infos
from gpu_plan.planner.trace.sizes.errors import NotLinearError
from gpu_plan.planner.trace.sizes.ranges import ranges_for
from gpu_plan.planner.trace.step import Session, prepare
from gpu_plan.planner.trace.variant import StepVariant, is_one_graph

MakeBatch = Callable[[nn.Module, int, int], TrainingBatch]
"""(model, micro batch, sequence length) -> inputs."""


@dataclass(slots=True, kw_only=True)
class Tracer:
    """Records variants of one built model."""

    model: nn.Module
    make_batch: MakeBatch
    profile: KernelProfile
    has_sequence: bool
    fold: bool = True
    wide: bool = False
    """Whether a range is recorded before one of its sizes is told by itself, so that it serves as many as it can."""
    origin: Callable[[], str] = str
    """Names the user's own line that runs, where the model is the user's code."""
    recorded: Recorded = field(default_factory=Recorded)
    """Of this model before, or of another one built alike."""
    _prepared: str = ""
    _has_run: bool = False

    @property
    def notes(self) -> list[str]:
        """What was noted while it recorded."""
        return self.recorded.notes

    def trace(self, variant: StepVariant, micro_batch: int) -> StepTrace:
        """The step at `micro_batch`, and at every other size that its `samples` span."""
        self._prepare(variant)
        ranges = tuple(ranges_for(micro_batch, alone=variant.compilation is not None))
        known = self.recorded
        told = None if self.wide else known.told(variant, ranges)
        for points in ranges:
            told = told or known.told(variant, (points,))
            if told is not None:
                return told
            if known.bends(variant, points):
                continue
            try:
                known.lines.setdefault(variant.key(), []).append(self._build(variant, points))
                told = known.told(variant, (points,) if self.wide else ranges)
            except NotLinearError:
                pass
            if told is not None:
                return told
            known.broken.add((variant.key(), points))
        raise AssertionError("a single recording is always linear")

    def line(self, variant: StepVariant, samples: tuple[int, ...]) -> StepTrace:
        """The step at all micro batches from the first to the last of `samples`, to the byte; what follows rules is
        still to be settled. NotLinearError where recordings there do not lie on one line."""
        self._prepare(variant)
        line = self._build(variant, samples, unsettled=True)
        if not line.exact:
            raise NotLinearError("tiles of kernels lie beside the line")
        return line.trace

    def _prepare(self, variant: StepVariant) -> None:
        key = f"{variant.regime} {variant.checkpointing} {variant.checkpoint_every} {variant.checkpoints_on_host}"
        if key != self._prepared:
            prepare(self.model, variant, self.profile)
            self._prepared = key
        if variant.checkpoint_every != self.recorded.every:
            # Equal layers of which some are checkpointed repeat with another period.
            self.recorded.every = variant.checkpoint_every
            self.recorded.fold_anew(None)

    def _build(self, variant: StepVariant, sizes: tuple[int, ...], *, unsettled: bool = False) -> Line:
        # Without a backward pass nothing shows that blocks are alike in it.
        folds = self.folds() if self.fold and not is_one_graph(variant) and not variant.evaluation else []
        try:
            return self._traced(variant, sizes, folds, unsettled=unsettled)
        except (NotLinearError, InputError):
            raise
        except Exception as reason:  # a model may do anything with its blocks: without folding it is on its own
            if not folds:
                raise
            if isinstance(reason, CannotFoldError) and self._widen(folds):
                return self._build(variant, sizes, unsettled=unsettled)
            kind = "" if isinstance(reason, CannotFoldError | PlanError) else f"{type(reason).__name__}: "
            note = f"blocks are traced one by one: {kind}{reason}"
            if note not in self.notes:
                self.notes.append(note)
            self.recorded.fold_anew([])
            return self._traced(variant, sizes, [], unsettled=unsettled)

    def _widen(self, folds: list[Fold]) -> bool:
        """Whether runs of several kinds of blocks are tried again with whole units at their ends."""
        if all(fold.end_blocks == fold.period for fold in folds):
            return False
        self.recorded.fold_anew(folds_of(self.model, whole_ends=True))
        return True

    def folds(self) -> list[Fold]:
        """Runs of equal blocks that are traced a few times and copied; none once folding has failed."""
        if self.recorded.folds is None:
            self.recorded.folds = folds_of(self.model)
        return self.recorded.folds

    def _traced(self, variant: StepVariant, sizes: tuple[int, ...], folds: list[Fold], *, unsettled: bool) -> Line:
        session = Session(model=self.model, variant=variant, profile=self.profile, folds=folds, origin=self.origin)
        made: dict[int, Recording] = {}
        told = self._told(session, variant, sizes[0]) if len(sizes) == 1 else None
        if len(sizes) > 1 and any(self.recorded.loops.values()) and self._loops(session, variant):
            raise NotLinearError("something is done for each sample in turn")
        try:
            for size in sizes if self.wide else _ends_first(sizes):
                if len(made) == 2 and not self.wide and ends_suffice(made[sizes[0]], made[sizes[-1]]):
                    break
                made[size] = told or self._recorded(session, variant, size)
                if len(sizes) > 1 and made[size].loops.calls and self._loops(session, variant):
                    raise NotLinearError("something is done for each sample in turn")
                if size != sizes[0] and signature(made[size].raw) != signature(made[sizes[0]].raw):
                    raise NotLinearError("the step's structure changes with the micro batch")
            recordings = tuple(made[size] for size in sizes if size in made)
            trace = fit(
                recordings,
                parameter_infos(self.model),
                buffer_sizes(self.model),
                replace(
                    layout_of(self.model),
                    viewed=tuple(sorted(recordings[0].viewed)),
                    read=tuple(sorted(recordings[0].read)),
                ),
                self.notes,
                samples=sizes,
                unsettled=unsettled,
            )
        except NotLinearError:
            self.recorded.keep_apart(variant, list(made.values()))
            raise
        if told is None:
            self.recorded.keep_apart(variant, [recordings[-1]])
        for fold in folds:
            trace = expand(trace, fold)
        return Line(trace=trace, exact=lie_exactly(recordings))

    def _loops(self, session: Session, variant: StepVariant) -> bool:
        """Whether one sample more means more of the same: what is done for each piece of a batch may be pieces that
        are as many at any size, of experts."""
        key = variant.key()
        if key not in self.recorded.loops:
            few = self._recorded(session, variant, FEW)
            self.recorded.loops[key] = bool(few.loops.calls) and signature(few.raw) != signature(
                self._recorded(session, variant, MORE).raw
            )
        return self.recorded.loops[key]

    def _told(self, session: Session, variant: StepVariant, micro_batch: int) -> Recording | None:
        """The step as recordings of other micro batches tell it; None where they do not, or it is one of those."""
        most = next((size for size in MOST if micro_batch <= size), None)
        key = variant.key()
        if micro_batch <= MORE or most is None or not self.recorded.loops.get(key):
            return None
        if (key, most) not in self.recorded.grown:
            with no_collection():
                self.recorded.grown[key, most] = grown(functools.partial(self._cut, session, variant), most)
        found = self.recorded.grown[key, most]
        with no_collection():
            return None if found is None else found.at(micro_batch)

    def _cut(self, session: Session, variant: StepVariant, micro_batch: int, keep: int) -> Recording:
        """A step whose loops over samples are run for some of them; 0: for all."""
        if not keep:
            return self._recorded(session, variant, micro_batch)
        loops = self._recorded(session, variant, FEW).loops
        try:
            return self._recording(session, variant, micro_batch, keep, loops)
        except Exception as reason:  # a model may do anything with the pieces: then it is recorded whole
            raise UnlikeError(str(reason)) from reason

    def _recorded(self, session: Session, variant: StepVariant, micro_batch: int) -> Recording:
        """A step as it is kept, or recorded now."""
        recording = self.recorded.apart.get((variant.key(), micro_batch))
        if recording is None:
            recording = self._record(session, variant, micro_batch)
            if recording.loops.calls:
                self.recorded.keep_apart(variant, [recording])
        return recording

    def _record(self, session: Session, variant: StepVariant, micro_batch: int) -> Recording:
        """A step, of a model that has run before: where the first one leaves something to the others, the second."""
        recording = self._recording(session, variant, micro_batch)
        if recording.leaves and not self._has_run:
            recording = self._recording(session, variant, micro_batch)
        self._has_run = True
        return recording

    def _recording(
        self, session: Session, variant: StepVariant, micro_batch: int, keep: int = 0, loops: Loops = NO_LOOPS
    ) -> Recording:
        with one_thread():
            batch = self.make_batch(self.model, micro_batch, variant.own_length)
        if variant.stage is not None:
            batch = _of_stage(self.model, batch, variant)
        if variant.split is not None:
            batch = shared_out(batch, variant.split, variant.seq_len)
        if variant.part is None:
            batch = in_types_of(padded(self.model, batch, variant.padding), variant)
        tokens = micro_batch * (variant.seq_len if self.has_sequence else 1)
        return session.record(batch, micro_batch, tokens, keep=keep, loops=loops)


def _ends_first(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """A range's micro batches in the order in which they are recorded: what lies between may not be needed."""
    return tuple(dict.fromkeys((sizes[0], sizes[-1], *sizes)))


def _of_stage(model: nn.Module, batch: TrainingBatch, variant: StepVariant) -> TrainingBatch:
    """What one stage is given of a batch; hidden states have the type of the embedding, which autocast leaves alone."""
    assert variant.stage is not None
    tensors = stage_inputs(model, variant.stage, batch.tensors, getattr(torch, variant.regime.weights))
    return replace(batch, tensors=tensors, values={name: v for name, v in batch.values.items() if name in tensors})


def in_types_of(batch: TrainingBatch, variant: StepVariant) -> TrainingBatch:
    """Images and sound in the 16-bit type of the weights, where no autocast region converts them.

    transformers trainer.py: _prepare_input does so under DeepSpeed; other loops must, or the first layer refuses.
    """
    regime = variant.regime
    if regime.autocast is not None or regime.weights == "float32":
        return batch
    weights = getattr(torch, regime.weights)
    tensors = {
        name: value.to(weights) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in batch.tensors.items()
    }
    if all(tensors[name] is value for name, value in batch.tensors.items()):
        return batch
    values = {name: value.to(tensors[name].dtype) for name, value in batch.values.items()}
    note = f"floating-point inputs are given in {regime.weights}, as the weights are"
    return replace(batch, tensors=tensors, values=values, notes=(*batch.notes, note))
