"""Runs one training step of the real model on meta, as its stack runs it, under the recorder."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.build.flash import flash_package, implementation_of, refuse_device, refuse_training
from gpu_plan.planner.model.build.lean.imports import dynamo_away, large_ones
from gpu_plan.planner.model.float8 import (
    as_it_was_built,
    convert_linears,
    gathered_weights,
    keep_as_built,
    wrapper_types,
)
from gpu_plan.planner.model.kernels.transformer_engine import TeDevice, convert_to_transformer_engine
from gpu_plan.planner.trace.events import Mark, numberless
from gpu_plan.planner.trace.folding.fold import folded
from gpu_plan.planner.trace.folding.units import Fold
from gpu_plan.planner.trace.inputs.batch import TrainingBatch, training_loss
from gpu_plan.planner.trace.inputs.known import KnownValues, remember_literals
from gpu_plan.planner.trace.kernels.attention import run_backend
from gpu_plan.planner.trace.kernels.scans.replace import fused_scans
from gpu_plan.planner.trace.kernels.stack_losses.replace import STACK_LOSSES, loss_beside, stack_loss
from gpu_plan.planner.trace.kernels.stack_losses.smoothed import loss_of_smoothed, smoothed
from gpu_plan.planner.trace.kernels.stack_losses.value_heads import with_values
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile, KernelProfile
from gpu_plan.planner.trace.kernels.zero_linear import zero_linear
from gpu_plan.planner.trace.megatron.stage import run_forward, run_part
from gpu_plan.planner.trace.parallel.context import split_attention
from gpu_plan.planner.trace.parallel.entering import experts_entered
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.parallel.experts import dispatched
from gpu_plan.planner.trace.parallel.sequence import step_of_parts
from gpu_plan.planner.trace.parallel.stages import stage_backward, stage_loss, stage_output
from gpu_plan.planner.trace.parallel.tensor import as_between_devices, distributed_types, local_tensor
from gpu_plan.planner.trace.recording.collection import no_collection, one_thread
from gpu_plan.planner.trace.recording.fit import NO_LOOPS, Loops, Recording
from gpu_plan.planner.trace.recording.functions import DeviceFunctions, autocast_visible, python_wrappers_open
from gpu_plan.planner.trace.recording.host_reads import HostReads
from gpu_plan.planner.trace.recording.modules import ModuleTracker
from gpu_plan.planner.trace.recording.reads import Reads
from gpu_plan.planner.trace.recording.recorder import Recorder
from gpu_plan.planner.trace.recording.repeats.windows import Windows
from gpu_plan.planner.trace.setup.autocast import Autocast
from gpu_plan.planner.trace.setup.checkpointing import set_checkpointing
from gpu_plan.planner.trace.setup.host_inputs import wait_on_host
from gpu_plan.planner.trace.setup.loss_variants import older_loss
from gpu_plan.planner.trace.setup.parameters import cast
from gpu_plan.planner.trace.variant import Regime, StepVariant, is_one_graph
from gpu_plan.planner.workload.losses import INSTALLED_LOSS, SMOOTHED, VALUED
from gpu_plan.planner.workload.training import Attention

_DECLARED = {VALUED: with_values, SMOOTHED: smoothed}
"""Losses that are made behind the model's call."""


@dataclass(slots=True, kw_only=True)
class Session:
    """One model under one variant, ready to be recorded at several micro batches."""

    model: nn.Module
    variant: StepVariant
    profile: KernelProfile
    folds: Sequence[Fold] = ()
    origin: Callable[[], str] = str
    """Names the user's own line that runs."""

    def record(
        self, batch: TrainingBatch, micro_batch: int, tokens: int, *, keep: int = 0, loops: Loops = NO_LOOPS
    ) -> Recording:
        """Records forward and backward on one micro batch, `loops` of which are run for `keep` samples; 0: for all."""
        there = large_ones()
        make = functools.partial(self._recorded, batch, micro_batch, tokens, keep, loops)
        with dynamo_away() if self.variant.compilation is None else contextlib.nullcontext():
            recording = make()
        return recording if large_ones() == there else make()

    def _recorded(self, batch: TrainingBatch, micro_batch: int, tokens: int, keep: int, loops: Loops) -> Recording:
        known = KnownValues()
        if self.variant.evaluation == "forward":
            batch = _unlabelled(batch)
        for name, value in batch.values.items():
            known.put(batch.tensors[name], value)
        tracker = ModuleTracker(self.model)
        recorder = Recorder(tracker, self.profile, HostReads(known), self._wrappers(), self.origin)
        recorder.keeps_rules = True
        inputs = {name: v for name, v in batch.tensors.items() if isinstance(v, torch.Tensor)}
        recorder.know([*map(local_tensor, self.model.parameters()), *self.model.buffers(), *inputs.values()])
        autocast = _autocast_of(self.variant.regime)
        reads = Reads(self.model, tracker)
        windows = Windows(samples=micro_batch, keep=keep, known=loops)
        regions = self._regions()
        with contextlib.ExitStack() as stack:
            stack.push(_none_left_behind(self.model))
            if self.variant.regime.float8 == "gathered":
                recorder.know(stack.enter_context(gathered_weights(self.model)))
            stack.enter_context(no_collection())
            stack.enter_context(one_thread())
            if self.variant.fused:
                stack.enter_context(self._liger())
            if self.variant.loss == VALUED or (
                self.variant.loss != INSTALLED_LOSS and self.variant.evaluation != "forward"
            ):
                found = stack_loss if self.variant.loss in STACK_LOSSES else older_loss
                declared = _DECLARED.get(self.variant.loss, found)
                stack.enter_context(declared(self.model, self.variant.loss))
            stack.enter_context(_gradient_events(self.model, recorder))
            stack.enter_context(folded(self.model, self.folds, lambda: len(recorder.raw.operators)))
            stack.enter_context(python_wrappers_open())
            stack.enter_context(self._among_ranks(known, tracker))
            stack.enter_context(autocast_visible(autocast))
            stack.enter_context(remember_literals(known))
            stack.enter_context(tracker)
            if self.variant.compilation is None:
                stack.enter_context(reads.watched())
                stack.enter_context(windows.watched(recorder.raw.operators))
            stack.enter_context(recorder)
            if (flash := implementation_of(self.model)) is not None:
                refuse_device(flash, getattr(self.profile, "capability", None))
                refuse_training(flash, self.model)
                stack.enter_context(flash_package(flash))
            split, runs = self.variant.split, run_backend
            if split is not None:
                runs = stack.enter_context(split_attention(self.model, split, known))
            functions = stack.enter_context(
                DeviceFunctions(self.profile, autocast, self._forces_flash(), runs, recorder.linear)
            )
            if self.variant.compilation is not None:
                stack.enter_context(self._compiled(regions, functions, autocast, tracker))
            if self.variant.regime.zero_linear:
                stack.enter_context(zero_linear())
            assumed = stack.enter_context(fused_scans(self.model)) if self.profile.fused_scans else []
            run = evaluation_pass if self.variant.evaluation else run_step if self.variant.stage is None else run_stage
            if self.variant.part is not None and self.variant.evaluation:
                held = run_forward(self.model, batch, recorder)
            elif self.variant.part is not None:
                held = run_part(self.model, self.variant.part, batch, tracker, recorder)
            else:
                held = run(self.model, batch, self.variant, autocast, tracker, recorder)
        standing = recorder.standing()
        raw = recorder.finish()
        del held
        known.forget()
        for parameter in self.model.parameters():
            parameter.grad = None
        named = self.model.named_parameters()
        return Recording(
            micro_batch=micro_batch,
            raw=raw,
            inputs=_sizes(inputs),
            tokens=tokens,
            notes=(*assumed, *batch.notes),
            leaves=any(one() is not None for one in standing),
            viewed=frozenset(numberless(name) for name, weight in named if recorder.views(local_tensor(weight))),
            read=reads.names(),
            loops=windows.loops,
        )

    @contextlib.contextmanager
    def _among_ranks(self, known: KnownValues, tracker: ModuleTracker) -> Iterator[None]:
        """What ranks that share the model do with weights, sequences and experts."""
        with contextlib.ExitStack() as stack:
            if self._between_ranks:
                stack.enter_context(as_between_devices())
            if self.variant.cuts_sequence:
                stack.enter_context(step_of_parts(self.model))
            if self.variant.expert_parallel > 1:
                stack.enter_context(dispatched(known, crowded=self.variant.crowded))
                takes = self.variant.regime.experts_take
                stack.enter_context(experts_entered(self.model, takes, tracker.before_entry))
            yield

    def _wrappers(self) -> tuple[type, ...]:
        float8 = wrapper_types() if self.variant.regime.float8 in ("cast", "gathered") else ()
        return (*float8, *(distributed_types() if self._between_ranks else ()))

    @property
    def _between_ranks(self) -> bool:
        """Whether the step holds tensors of several ranks, or what is sent between them."""
        shared = self.variant.part is not None and self.variant.part.group > 1
        return self.variant.spread > 1 or self.variant.split is not None or shared

    def _liger(self) -> contextlib.AbstractContextManager[None]:
        # Imported only where it is asked for.
        from gpu_plan.planner.trace.kernels.liger.loss import LigerDevice
        from gpu_plan.planner.trace.kernels.liger.replace import liger_kernels

        if not isinstance(self.profile, CudaProfile):
            raise InputError("Liger's kernels are Triton kernels: they need a GPU")
        device = LigerDevice(capability=self.profile.capability, sm_count=self.profile.sm_count)
        return liger_kernels(self.model, self.variant.fused, device)

    def _regions(self) -> list[str]:
        """Modules that are compiled; asked before any block is left out."""
        if self.variant.compilation is None:
            return []
        # Imported only where it is asked for: inductor takes seconds.
        from gpu_plan.planner.trace.compile.step import region_names

        return region_names(self.model, self.variant.compilation)

    def _compiled(
        self, regions: list[str], functions: DeviceFunctions, autocast: Autocast | None, tracker: ModuleTracker
    ) -> contextlib.AbstractContextManager[None]:
        from gpu_plan.planner.trace.compile.step import compiled_step

        assert self.variant.compilation is not None
        return compiled_step(
            self.model,
            regions,
            self.variant.compilation,
            self.profile,
            functions,
            autocast,
            tracker,
            around_model=functools.partial(_as_stack_calls, variant=self.variant, autocast=autocast),
        )

    def _forces_flash(self) -> bool:
        """Whether flash was asked of a model that only knows torch's attention: a factory's own."""
        return self.variant.attention is Attention.FLASH and implementation_of(self.model) is None


def _sizes(inputs: dict[str, torch.Tensor]) -> tuple[tuple[str, int], ...]:
    """Bytes of each input's storage; of one that goes by two names, once."""
    storages = {tensor.untyped_storage()._cdata: (name, tensor) for name, tensor in reversed(inputs.items())}
    return tuple((name, tensor.untyped_storage().nbytes()) for name, tensor in reversed(storages.values()))


def _none_left_behind(model: nn.Module) -> Callable[..., None]:
    """On leaving with an error: no gradient stays, to which the next recording would add."""

    def leave(kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for parameter in model.parameters():
                parameter.grad = None

    return leave


def run_step(
    model: nn.Module,
    batch: TrainingBatch,
    variant: StepVariant,
    autocast: Autocast | None,
    tracker: ModuleTracker,
    recorder: Recorder,
) -> tuple[Any, ...]:
    """The loop's body; returns what the loop still holds when the step is over.

    accelerate and plain loops keep `outputs` and `loss` until the next iteration rebinds them; transformers'
    Trainer drops the outputs when compute_loss returns and keeps no graph (trainer.py: training_step detaches).
    """
    recorder.mark(Mark.FORWARD)
    # What the stack does around the model's forward is compiled with it.
    call = model if is_one_graph(variant) else _as_stack_calls(model, variant, autocast)
    outputs = call(**batch.tensors)
    drops = variant.stack.traits.drops_outputs
    if not drops:
        # What the loop had of the pass before goes here, before a loss that the model does not make itself.
        recorder.mark(Mark.OUTPUTS_BOUND)
    loss = loss_beside(outputs)
    if loss is None:
        loss = loss_of_smoothed(model, outputs)
    if loss is None:
        loss = training_loss(model, outputs)
    if drops:
        outputs = None
        recorder.mark(Mark.OUTPUTS_BOUND)
    # accelerate accelerator.py: backward divides by the accumulation steps.
    scaled = loss / 1 if variant.stack.traits.loop == "accelerate" else loss
    tracker.start_backward()
    recorder.mark(Mark.BACKWARD)
    scaled.backward()
    del scaled
    tracker.end_backward()
    recorder.mark(Mark.BACKWARD_END)
    if variant.stack.traits.is_trainer:
        loss = loss.detach()
    return outputs, loss


def run_stage(
    model: nn.Module,
    batch: TrainingBatch,
    variant: StepVariant,
    autocast: Autocast | None,
    tracker: ModuleTracker,
    recorder: Recorder,
) -> tuple[Any, ...]:
    """One micro batch of one stage of a pipeline; returns what its schedule may still hold: the output, the loss and
    what is sent back (torch/distributed/pipelining/stage.py: forward_one_chunk, backward_one_chunk)."""
    stage = variant.stage
    assert stage is not None
    value = batch.tensors["input_ids" if stage.is_first else "hidden_states"]
    recorder.mark(Mark.FORWARD)
    output = _as_stack_calls(functools.partial(stage_output, model, stage), variant, autocast)(value)
    loss = stage_loss(model, output, batch.tensors["labels"]) if stage.is_last else None
    recorder.mark(Mark.OUTPUTS_BOUND)
    if not stage.is_last and output.dtype != batch.tensors["output_gradient"].dtype:
        raise CannotSplitError(f"{type(model).__name__} changes the type of its hidden states between layers")
    tracker.start_backward()
    recorder.mark(Mark.BACKWARD)
    result = output if loss is None else loss
    if variant.halves and not stage.is_first:
        back, groups = _inputs_half(model, result, batch.tensors.get("output_gradient"), value)
        # stage.py: backward_one_chunk lets go of the output's graph: detached in place, or, a view, with its name.
        output = output.detach() if output._is_view() else output.detach_()
        recorder.mark(Mark.WEIGHTS)
        _weights_half(model, groups, recorder)
    else:
        if variant.halves:
            recorder.mark(Mark.WEIGHTS)  # stage.py: backward_one_chunk: a first stage does all of it in the second half
        back = stage_backward(result, batch.tensors.get("output_gradient"), value)
    tracker.end_backward()
    recorder.mark(Mark.BACKWARD_END)
    return output, loss, back


def _inputs_half(
    model: nn.Module, result: torch.Tensor, gradient: torch.Tensor | None, value: torch.Tensor
) -> tuple[tuple[Any, ...], list[Any]]:
    """torch/distributed/pipelining/_backward.py: stage_backward_input: what is sent back, and what the gradients of
    each group of weights need."""
    from torch.distributed.pipelining._backward import stage_backward_input

    gradients = None if gradient is None else [gradient]
    back, groups = stage_backward_input([result], gradients, [value], model.parameters())
    return back, groups


def _weights_half(model: nn.Module, groups: list[Any], recorder: Recorder) -> None:
    """_backward.py: stage_backward_weight of one group of weights after the other: a group's gradients are held until
    the next one's stand."""
    from torch.distributed.pipelining._backward import stage_backward_weight

    numbers = {id(parameter): index for index, parameter in enumerate(model.parameters())}
    waiting: list[torch.Tensor] = []
    while groups:
        before = {id(each) for each in model.parameters() if each.grad is not None}
        stage_backward_weight(model.parameters(), [groups.pop(0)])
        _ready(waiting, numbers, recorder)
        waiting = [each for each in model.parameters() if each.grad is not None and id(each) not in before]
    _ready(waiting, numbers, recorder)


def _ready(parameters: list[torch.Tensor], numbers: dict[int, int], recorder: Recorder) -> None:
    for parameter in parameters:
        assert parameter.grad is not None
        recorder.gradient_ready(numbers[id(parameter)], local_tensor(parameter.grad))


def evaluation_pass(
    model: nn.Module,
    batch: TrainingBatch,
    variant: StepVariant,
    autocast: Autocast | None,
    tracker: ModuleTracker,
    recorder: Recorder,
) -> tuple[Any, ...]:
    """A batch of an evaluation; returns what the loop holds until the next one.

    transformers trainer.py: prediction_step returns the loss alone, or with it what the model gave beside loss and
    cache; loops of accelerate and plain ones keep `outputs`.
    """
    model.eval()
    try:
        with torch.no_grad():
            recorder.mark(Mark.FORWARD)
            outputs = _as_stack_calls(model, variant, autocast)(**batch.tensors, **_cache_words(model, variant))
            loss = None
            if variant.evaluation != "forward":
                loss = loss_of_smoothed(model, outputs)
                loss = training_loss(model, outputs) if loss is None else loss
    finally:
        model.train()
    if variant.stack.traits.is_trainer:
        kept = [value for key, value in outputs.items() if key not in _NOT_LOGITS] if hasattr(outputs, "items") else []
        outputs = tuple(kept) if variant.evaluation == "logits" else None
    recorder.mark(Mark.OUTPUTS_BOUND)
    recorder.mark(Mark.BACKWARD)
    recorder.mark(Mark.BACKWARD_END)
    return outputs, loss


_NOT_LOGITS = ("loss", "past_key_values")
_WITHOUT_CACHE = ("forward", "log-probabilities")


def _unlabelled(batch: TrainingBatch) -> TrainingBatch:
    """The same samples for a pass that nobody compares with anything."""
    without = {name: value for name, value in batch.tensors.items() if name != "labels"}
    values = {name: value for name, value in batch.values.items() if name in without}
    return replace(batch, tensors=without, values=values)


def _cache_words(model: nn.Module, variant: StepVariant) -> dict[str, bool]:
    """A model keeps keys and values where its config says so, as those of decoders do, but for the Trainer's.

    transformers trainer.py: train sets `config.use_cache` to the option's false.
    """
    if variant.evaluation in _WITHOUT_CACHE and "use_cache" in inspect.signature(model.forward).parameters:
        return {"use_cache": False}
    if variant.stack.traits.is_trainer or "use_cache" not in inspect.signature(model.forward).parameters:
        return {}
    return {"use_cache": bool(getattr(type(getattr(model, "config", None)), "use_cache", True))}


def _as_stack_calls(forward: Callable[..., Any], variant: StepVariant, autocast: Autocast | None) -> Callable[..., Any]:
    """`forward` in the autocast region that the stack puts around it, its outputs converted as the stack has them."""

    def call(*args: Any, **kwargs: Any) -> Any:
        before = autocast.enter(True) if autocast is not None else False
        outputs = forward(*args, **kwargs)
        if autocast is not None:
            autocast.leave(before)
        return _to_fp32(outputs) if variant.regime.outputs_to_fp32 else outputs

    return call


def _to_fp32(outputs: Any) -> Any:
    """accelerate utils/operations.py: convert_to_fp32, over mappings, tuples and model outputs."""
    if isinstance(outputs, torch.Tensor):
        return outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs
    if isinstance(outputs, dict):
        return type(outputs)(**{key: _to_fp32(value) for key, value in outputs.items()})
    if isinstance(outputs, tuple) and hasattr(outputs, "_fields"):
        return type(outputs)(*(_to_fp32(item) for item in outputs))
    if isinstance(outputs, (tuple, list)):
        return type(outputs)(_to_fp32(item) for item in outputs)
    return outputs


def _autocast_of(regime: Regime) -> Autocast | None:
    return Autocast(getattr(torch, regime.autocast)) if regime.autocast else None


@contextlib.contextmanager
def _gradient_events(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    def hook(index: int) -> Any:
        def ready(parameter: torch.Tensor) -> None:
            if parameter.grad is not None:  # a function of the model's own may give none
                recorder.gradient_ready(index, local_tensor(parameter.grad))

        return ready

    handles = [
        parameter.register_post_accumulate_grad_hook(hook(index))
        for index, parameter in enumerate(model.parameters())
        if parameter.requires_grad
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def prepare(model: nn.Module, variant: StepVariant, profile: KernelProfile) -> None:
    """Casts the model to the variant's types and switches checkpointing, in place.

    InputError when the model cannot be checkpointed, or computed in float8.
    """
    if variant.part is not None:
        return  # built so
    regime = variant.regime
    as_it_was_built(model)
    if regime.float8:
        keep_as_built(model)
    if regime.float8 == "te":
        _use_transformer_engine(model, profile)
    elif regime.float8:
        convert_linears(model, emulate=not isinstance(profile, CudaProfile))
    cast(model, regime)
    set_checkpointing(
        model,
        variant.checkpointing,
        variant.checkpoint_every,
        variant.stack.traits,
        reentrant=variant.checkpoint_reentrant,
    )
    wait_on_host(model, variant.checkpoints_on_host)


def _use_transformer_engine(model: nn.Module, profile: KernelProfile) -> None:
    if not isinstance(profile, CudaProfile):
        raise InputError("--set fp8.backend=te: Transformer Engine computes on GPUs alone")
    convert_to_transformer_engine(model, TeDevice(profile.capability, profile.sm_count))
