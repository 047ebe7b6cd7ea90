"""Where torch comes in: builds the model that a source names and traces it."""

import contextlib
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from gpu_plan.planner.context.split import SequenceSplit
from gpu_plan.planner.errors import InputError, PlanError
from gpu_plan.planner.megatron.part import Part
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.build.construct import build_model, from_factory
from gpu_plan.planner.model.build.specs import spec_of
from gpu_plan.planner.model.quantization.configs import stored_scheme
from gpu_plan.planner.model.quantization.scheme import Target
from gpu_plan.planner.model.source.resolve import ModelSource, load_factory
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.folding.blocks import signature_of
from gpu_plan.planner.trace.inputs.batch import TrainingBatch, training_batch
from gpu_plan.planner.trace.inputs.given import given_batch
from gpu_plan.planner.trace.kernels.temporaries import kernel_profile
from gpu_plan.planner.trace.parallel.context import refuse_model
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.parallel.numbers import renumbered
from gpu_plan.planner.trace.parallel.sequence import cut_sequence
from gpu_plan.planner.trace.parallel.stages import cut, layer_list, untie
from gpu_plan.planner.trace.parallel.tensor import ranks, shard
from gpu_plan.planner.trace.recording.origins import Origins
from gpu_plan.planner.trace.recording.recorded import Recorded
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import StepVariant

_MOST_TRACERS = 8
"""Stages of Megatron-core that are at hand to be traced at another micro batch: those of a layout and of the one
before; each holds what it recorded."""


class TracingSession:
    """One built model on the meta device."""

    def __init__(
        self,
        source: ModelSource,
        device: DeviceKind,
        attention: str,
        adapter: Adapter | None = None,
        *,
        wide: bool = False,
    ) -> None:
        self._source = source
        self._given: dict[str, Any] | tuple[Any, ...] | None = None
        if source.config is None:
            self._model, self._given = from_factory(load_factory(source))
        else:
            self._model = build_model(source.config, attention=attention)
        self._base = self._model
        self._spec = spec_of(self._model, model_id=source.id)
        if adapter is not None:
            # peft is imported only when it is asked for.
            from gpu_plan.planner.model.adapt import adapt

            stored = None if source.config is None else stored_scheme(source.config)
            adapted = adapt(self._model, self._spec, adapter, stored=stored, target=_target(device))
            self._model, self._spec = adapted.model, adapted.spec
        self._device, self._attention, self._wide = device, attention, wide
        self._stages: dict[tuple[object, ...], tuple[int, int, StepTrace]] = {}
        self._recorded: dict[tuple[object, ...], Recorded] = {}
        self._tracers: dict[tuple[object, ...], tuple[StepVariant, Tracer]] = {}
        self._held: contextlib.ExitStack | None = None
        """The group of ranks that `held` leaves open."""
        self._held_part: tuple[tuple[object, ...], Tracer] | None = None
        """What was built in it, and what it is the part of."""
        self._origin = Origins(Path.cwd()).current if source.kind == "factory" else str
        self._tracer = self._traced(self._model)

    def _recorded_of(self, key: tuple[object, ...]) -> Recorded:
        """What was recorded of parts like this one: each is built for itself."""
        if key not in self._recorded and len(self._recorded) == _MOST_TRACERS:
            self._recorded.pop(next(iter(self._recorded)))
        return self._recorded.setdefault(key, Recorded())

    def _traced(self, model: nn.Module, recorded: Recorded | None = None) -> Tracer:
        return Tracer(
            recorded=recorded or Recorded(),
            model=model,
            make_batch=self._batch,
            profile=kernel_profile(self._device),
            has_sequence=self._spec.has_sequence,
            wide=self._wide,
            origin=self._origin,
        )

    def spec(self) -> ModelSpec:
        """Parameters and identity."""
        return self._spec

    def trace(self, variant: StepVariant, micro_batch: int) -> StepTrace:
        """Traces the step; see `Tracer.trace`. Problems inside the model's code become one line."""
        try:
            if self._held_part is not None and self._held_part[0] != _whose(variant):
                self._let_go()
            if variant.part is not None:
                return self._trace_megatron(variant, variant.part, micro_batch)
            if variant.stage is not None:
                return self._trace_stage(variant, micro_batch)
            if variant.spread > 1:
                return self._trace_part(variant, micro_batch)
            if variant.split is not None:
                return self._trace_share(variant, micro_batch, variant.split)
            return self._tracer.trace(variant, micro_batch)
        except PlanError:
            raise
        except Exception as problem:
            name, kind = type(self._base).__name__, type(problem).__name__
            if variant.spread > 1:
                raise CannotSplitError(f"{name} does not run so in parts: {_said(problem)}") from problem
            told = "" if _said(problem) == kind else f": {_said(problem)}"
            raise InputError(f"{self._source.id}: {name} cannot be traced: {kind}{told}") from problem

    def line(self, variant: StepVariant, samples: tuple[int, ...]) -> StepTrace:
        """Of a rank that holds the whole model and computes whole samples; see `Tracer.line`."""
        return self._tracer.line(variant, samples)

    def _trace_part(self, variant: StepVariant, micro_batch: int) -> StepTrace:
        """Of one of several ranks: a part remembers its group, and lives no longer."""
        if self._source.config is None:
            raise CannotSplitError(f"{self._source.id}: only models of transformers have a plan to be split by")
        recorded = self._recorded_of(("part", variant.key(), variant.rank))
        if (found := recorded.at_once(variant, micro_batch, wide=self._wide)) is not None:
            return found
        with self._in_part(variant) as tracer:
            tracer.recorded = recorded
            try:
                return tracer.trace(variant, micro_batch)
            except RuntimeError as problem:
                name = type(tracer.model).__name__
                raise CannotSplitError(f"{name} does not train as {self._by(variant)}: {_said(problem)}") from None

    @contextlib.contextmanager
    def _in_part(self, variant: StepVariant) -> Iterator[Tracer]:
        """What traces a rank's part, within its group."""
        if self._held is None:
            with ranks(variant.spread, variant.rank):
                yield self._part(variant)
            return
        try:
            if self._held_part is None:
                self._held.enter_context(ranks(variant.spread, variant.rank))
                self._held_part = _whose(variant), self._part(variant)
            yield self._held_part[1]
        except BaseException:
            self._let_go()
            raise

    def _part(self, variant: StepVariant) -> Tracer:
        assert self._source.config is not None
        model = build_model(self._source.config, attention=self._attention)
        take_part(model, variant)
        return self._traced(model)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Within, a rank's part is built once for all its sizes and checkpoints: its group stays open until another is
        asked for."""
        with contextlib.ExitStack() as self._held:
            try:
                yield
            finally:
                self._held_part = None
        self._held = None

    def _let_go(self) -> None:
        assert self._held is not None
        self._held_part = None
        self._held.close()

    @staticmethod
    def _by(variant: StepVariant) -> str:
        """Who spreads it, for people."""
        whose = variant.stack.traits.title if variant.cuts_sequence else "transformers"
        return f"{whose} spreads it over {variant.spread} ranks"

    def _trace_share(self, variant: StepVariant, micro_batch: int, split: SequenceSplit) -> StepTrace:
        """Of a rank that computes its share of every sample's tokens, with the whole model."""
        refuse_model(self._base, split, str(variant.attention))
        try:
            with ranks(split.degree, split.rank):
                return self._tracer.trace(variant, micro_batch)
        except RuntimeError as problem:
            name = type(self._base).__name__
            raise CannotSplitError(f"{name} does not run on a share of its tokens: {_said(problem)}") from None

    def _trace_stage(self, variant: StepVariant, micro_batch: int) -> StepTrace:
        """Of one stage; one of equal layers is another one's under other names."""
        stage = variant.stage
        assert stage is not None
        if self._source.config is None:
            raise CannotSplitError(f"{self._source.id}: only models of transformers are cut into stages")
        name, layers = layer_list(self._model)
        kinds = tuple(signature_of(layer) for layer in layers[stage.first : stage.end])
        alike = (replace(variant, stage=None).key(), stage.is_first, stage.is_last, kinds)
        key = (*alike, micro_batch)
        if key not in self._stages:
            with ranks(variant.tensor_parallel, variant.rank):
                model = build_model(self._source.config, attention=self._attention)
                if variant.tensor_parallel > 1:
                    layer_list(model)  # refuses a class that is not cut, in its own words
                    untie(model)
                    shard(model, variant.tensor_parallel)
                cut(model, stage)
                recorded = self._recorded_of(("stage", *alike, stage.first, stage.end))
                trace = self._traced(model, recorded).trace(variant, micro_batch)
                self._stages[key] = stage.first, stage.end, trace
        first, end, trace = self._stages[key]
        return renumbered(trace, name, range(first, end), stage.first - first)

    def _trace_megatron(self, variant: StepVariant, part: Part, micro_batch: int) -> StepTrace:
        """Of one stage of Megatron-core's own model; one of equal layers is another one's under other names."""
        from gpu_plan.planner.trace.megatron.group import begin_groups

        first, kinds = part.cut.first, part.kinds
        key = (replace(variant, part=None).key(), part.model, part.layout.own(), *kinds)
        sized = (*key, micro_batch)
        if sized not in self._stages:
            with ranks(part.group):
                begin_groups()
                like, tracer = self._tracer_of(key, variant, part)
                assert like.part is not None
                self._stages[sized] = like.part.cut.first, like.part.cut.end, tracer.trace(like, micro_batch)
        traced_first, traced_end, trace = self._stages[sized]
        return renumbered(trace, "decoder.layers", range(traced_first, traced_end), first - traced_first)

    def _tracer_of(self, key: tuple[object, ...], variant: StepVariant, part: Part) -> tuple[StepVariant, Tracer]:
        """What traces stages like this one, and the variant under which it does: what was recorded of one micro batch
        serves others."""
        from gpu_plan.planner.trace.megatron.stage import build_stage, stage_batch

        if key not in self._tracers:
            if len(self._tracers) == _MOST_TRACERS:
                self._tracers.pop(next(iter(self._tracers)))
            tracer = Tracer(
                model=build_stage(part),
                make_batch=lambda _, samples, length: stage_batch(part, samples, length),
                profile=kernel_profile(self._device, row_sums=True),
                has_sequence=True,
                # What is run again within backward is not alike from layer to layer as folding would have it.
                fold=part.layout.recompute != "full",
            )
            self._tracers[key] = variant, tracer
        return self._tracers[key]

    def _batch(self, model: nn.Module, micro_batch: int, seq_len: int) -> TrainingBatch:
        # What a model takes and how it counts its loss is read from its own class, not from a wrapper around it.
        if self._given is None:
            return training_batch(self._base, batch=micro_batch, seq_len=seq_len)
        return given_batch(self._base, self._given, batch=micro_batch)


def take_part(model: Any, variant: StepVariant) -> None:
    """Leaves of `model`, in place, what the variant's rank holds, by its stack's way to spread it."""
    if not variant.cuts_sequence:
        shard(model, variant.tensor_parallel, variant.expert_parallel, apart=variant.regime.ties_apart)
        return
    from torch.distributed.device_mesh import init_device_mesh

    if variant.expert_parallel > 1:
        raise CannotSplitError(f"--ep beside --tp under stack {variant.stack} is not in this version")
    mesh = init_device_mesh("cpu", (variant.tensor_parallel,), mesh_dim_names=("tp",))
    cut_sequence(model, mesh, variant.seq_len)


def _whose(variant: StepVariant) -> tuple[object, ...]:
    """What a rank's part is built for, and cast to: the same for any micro batch and checkpoints."""
    shares = (variant.spread, variant.rank, variant.tensor_parallel, variant.expert_parallel, variant.cuts_sequence)
    length = variant.seq_len if variant.cuts_sequence else 0
    return (*shares, length, variant.regime, variant.stack, variant.part, variant.stage, variant.split)


def _target(device: DeviceKind) -> Target:
    """The GPU whose kernels run quantised products."""
    return Target(capability=device.capability, sm_count=device.sm_count)


def _said(problem: Exception) -> str:
    """The first line that an error of somebody else's says; its kind, and where it was raised, where it says
    nothing."""
    lines = [line.strip(" :.") for line in str(problem).splitlines()]
    told = next((line for line in lines if line), "")
    if told:
        return told[:200]
    raised = traceback.extract_tb(problem.__traceback__)
    return type(problem).__name__ + (f" in {Path(raised[-1].filename).name}: {raised[-1].name}" if raised else "")
