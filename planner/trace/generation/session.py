"""Where torch comes in: builds the model that is to generate, and records its generations."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from gpu_plan.planner.errors import InputError, PlanError, UsageError
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.build.quiet_logs import quiet_logs
from gpu_plan.planner.model.build.specs import spec_of
from gpu_plan.planner.model.family import forward_names
from gpu_plan.planner.model.quantization import Scheme, Target
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.folding.expand import expand
from gpu_plan.planner.trace.folding.fold import folds_of_part
from gpu_plan.planner.trace.folding.units import CannotFoldError, Fold
from gpu_plan.planner.trace.generation.record import prepare_for_generation, record_generation
from gpu_plan.planner.trace.generation.staging import check_stages, received, stage
from gpu_plan.planner.trace.generation.variant import GenerationVariant
from gpu_plan.planner.trace.kernels.temporaries import kernel_profile
from gpu_plan.planner.trace.layout import layout_of
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.parallel.quantised import take_parts
from gpu_plan.planner.trace.parallel.tensor import ranks, shard
from gpu_plan.planner.trace.recording.fit import Recording, fit
from gpu_plan.planner.trace.setup.parameters import buffer_sizes, parameter_infos

_QUANTISATION = ("quantization_config", "compression_config")


class GenerationSession:
    """One built model on the meta device, in one weight type, quantised or not."""

    def __init__(
        self,
        source: ModelSource,
        device: DeviceKind,
        attention: str,
        dtype: str,
        scheme: Scheme | None = None,
        *,
        ruled: bool = False,
    ) -> None:
        """With `ruled`, what follows rules is left to be settled in every trace."""
        if source.config is None:
            raise UsageError(
                f"--task infer plans models of transformers, whose generate it traces: {source.id} is not one"
                " (name a hub id, a folder or a config.json)"
            )
        self.fold = True
        """Whether equal blocks are recorded once and copied."""
        self._whole_ends = False
        """Whether runs of several kinds of blocks are folded between whole units, not between blocks."""
        self._notes: list[str] = []
        self._held: contextlib.ExitStack | None = None
        """The group of ranks that `held` leaves open."""
        self._held_part: tuple[tuple[int, int, int], Any] | None = None
        """Degrees and stage of the part that was built in it."""
        self._id = source.id
        self._config = {key: value for key, value in source.config.items() if key not in _QUANTISATION}
        self._attention, self._dtype = attention, getattr(torch, dtype)
        self._scheme, self._target = scheme, Target(capability=device.capability, sm_count=device.sm_count)
        self._ruled, self._profile = ruled, kernel_profile(device, splits=ruled)
        unquantised = self._plain()
        self._plain_buffers = frozenset(name for name, _ in unquantised.named_buffers())
        plain = spec_of(unquantised, model_id=source.id)
        self._model = self._built()
        self._spec = replace(
            spec_of(self._model, model_id=source.id),
            num_parameters=plain.num_parameters,
            trainable_parameters=plain.trainable_parameters,
            notes=(*plain.notes, *self._scheme_notes),
        )
        if not _generates(self._model):
            raise UsageError(
                f"{source.id}: {type(self._model).__name__} generates no text: --task infer plans models with generate"
            )
        prepare_for_generation(self._model)

    def _plain(self) -> Any:
        return build_model(self._config, attention=self._attention, dtype=self._dtype)

    def _built(self) -> Any:
        model = self._plain()
        self._scheme_notes: tuple[str, ...] = ()
        if self._scheme is not None:
            # Imported only where it is asked for.
            from gpu_plan.planner.model.quantization.apply import quantise

            facts = quantise(model, self._scheme, target=self._target, dtype=self._dtype)
            self._scheme_notes = (f"{facts.layers} layers as {self._scheme.word}: {facts.kernel}", *facts.notes)
        return model

    def _recorded(self, model: Any, variant: GenerationVariant) -> StepTrace:
        """Blocks of a kind are recorded a few times and copied, unless that fails: then each runs."""
        folds = folds_of_part(model, self._model, whole_ends=self._whole_ends) if self.fold else []

        def made(folds: Sequence[Fold] = ()) -> StepTrace:
            recording = record_generation(model, variant, self._profile, folds, keeps_rules=self._ruled)
            return trace_of(model, recording, folds, self._notes, unsettled=self._ruled)

        if not folds:
            return made()
        try:
            return made(folds)
        except (InputError, UsageError):
            raise
        except Exception as reason:  # a model may do anything with its blocks: without folding it is on its own
            narrow = any(fold.end_blocks < fold.period for fold in folds)
            if narrow and isinstance(reason, CannotFoldError):
                self._whole_ends = True
            else:
                self.fold = False
                self._notes.append(_why_unfolded(reason))
        return self._recorded(model, variant)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Within, a rank's part is built once for all its sizes: its group stays open until another is asked for."""
        with contextlib.ExitStack() as self._held:
            try:
                yield
            finally:
                self._held_part = None
        self._held = None

    @contextlib.contextmanager
    def _in_part(self, variant: GenerationVariant) -> Iterator[Any]:
        """The rank's part of the model, within its ranks: a part remembers its group, and lives no longer."""
        key = (variant.tensor_parallel, variant.pipeline_parallel, variant.stage)
        if self._held is None or variant.ranks == 1:
            if self._held is not None:
                self._let_go()
            with ranks(variant.ranks, variant.stage):
                yield self._part(variant)
            return
        if self._held_part is None or self._held_part[0] != key:
            self._let_go()
            self._held.enter_context(ranks(variant.ranks, variant.stage))
            self._held_part = key, self._part(variant)
        model = self._held_part[1]
        if variant.pipeline_parallel > 1:
            model._pp_batch = variant.batch
        try:
            yield model
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        assert self._held is not None
        self._held_part = None
        self._held.close()

    def _part(self, variant: GenerationVariant) -> Any:
        if variant.ranks == 1:
            return self._model
        if variant.pipeline_parallel > 1:
            check_stages(self._model, variant.pipeline_parallel)
        model = self._built()
        prepare_for_generation(model)
        if variant.tensor_parallel > 1:
            shard(model, variant.tensor_parallel)
            take_parts(model)
            model.requires_grad_(False)
        else:
            stage(model, variant.pipeline_parallel)
            model._pp_batch = variant.batch
        return model

    def spec(self) -> ModelSpec:
        """Parameters and identity."""
        return self._spec

    def merged(self) -> list[str]:
        """Parameters that loading puts together from several of the checkpoint's tensors.

        transformers core_model_loading.py: WeightConverter.convert holds what an operation takes and what it gives.
        """
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter

        with quiet_logs():
            transforms = get_model_conversion_mapping(self._model)
        targets = [
            target for entry in transforms if isinstance(entry, WeightConverter) for target in entry.target_patterns
        ]
        return [name for name, _ in self._model.named_parameters() if any(target in name for target in targets)]

    def packed(self) -> list[str]:
        """Buffers that only the quantised model has, each as name, dtype and sizes between spaces: weights, scales."""
        return [
            " ".join([name, str(tensor.dtype).removeprefix("torch."), *map(str, tensor.shape)])
            for name, tensor in self._model.named_buffers()
            if name not in self._plain_buffers
        ]

    def trace(self, variant: GenerationVariant) -> StepTrace:
        """Records the generation; problems inside the model's code become one line.

        InputError, or CannotSplitError where a rank's part has them, which leaves the whole model's plans.
        """
        try:
            with self._in_part(variant) as model, received(model):
                return self._recorded(model, variant)
        except PlanError:
            raise
        except Exception as problem:
            first = str(problem).strip().splitlines() or [""]
            why = f"{type(problem).__name__}: {first[0][:200]}"
            name = type(self._model).__name__
            if variant.ranks > 1:
                raise CannotSplitError(f"{name}.generate cannot be traced so: {why}") from problem
            raise InputError(f"{self._id}: {name}.generate cannot be traced: {why}") from problem


def trace_of(
    model: Any,
    recording: Recording,
    folds: Sequence[Fold] = (),
    notes: Sequence[str] = (),
    *,
    unsettled: bool = False,
) -> StepTrace:
    """The recording as arrays, its categories as the recorder gave them: nothing is kept for a backward pass.

    What `folds` left out is put back. CannotFoldError where blocks turn out not to be alike.
    """
    facts = (parameter_infos(model), buffer_sizes(model), layout_of(model), list(notes))
    trace = fit((recording,), *facts, unsettled=unsettled)
    categories = np.asarray([tensor.category for tensor in recording.raw.tensors], dtype=np.int64)
    trace = replace(trace, category=categories)
    for fold in folds:
        trace = expand(trace, fold)
    return trace


def _why_unfolded(reason: Exception) -> str:
    kind = "" if isinstance(reason, CannotFoldError | PlanError) else f"{type(reason).__name__}: "
    return f"blocks are traced one by one: {kind}{reason}"


def _generates(model: Any) -> bool:
    can = getattr(model, "can_generate", None)
    return bool(can is not None and can() and "input_ids" in forward_names(model))
