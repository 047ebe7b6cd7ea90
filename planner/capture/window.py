"""Opens everything around the script, and closes the capture when its first optimizer step is done."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from planner.capture.cuda_answers import cuda_answers
from planner.capture.distributed import one_rank
from planner.capture.host_values import LoopReads
from planner.capture.imports import when_imported
from planner.capture.loaders import loaders
from planner.capture.observe import Observed, loop_of, optimizer_facts, planned_name, watch, watch_trainer
from planner.capture.placement import Placement, parameters_on_meta
from planner.capture.precision import Regions, autocast_regions
from planner.capture.pretrained import weightless_models
from planner.capture.recording import StepRecorder, inner_model, micro_batch_of, sequence_of
from planner.capture.request import CapturedFacts, CaptureRequest
from planner.errors import InputError
from planner.model.build import spec_of
from planner.trace.checkpointing import set_checkpointing
from planner.trace.fit import fit
from planner.trace.functions import DeviceFunctions, python_wrappers_open
from planner.trace.inputs_known import KnownValues, remember_literals
from planner.trace.kernels import CpuProfile, CudaProfile, KernelProfile
from planner.trace.layout import layout_of
from planner.trace.storage import dump
from planner.trace.tracer import buffer_sizes, parameter_infos

Deliver = Callable[[CapturedFacts, bytes], None]


class Window:
    """One script under watch."""

    def __init__(self, request: CaptureRequest, deliver: Deliver) -> None:
        self._request, self._deliver = request, deliver
        self._known = KnownValues()
        self._reads = LoopReads(self._known)
        self._regions = Regions(request.regime, on_cpu=request.device.capability_major is None)
        self._placement = Placement(self._known, on_cpu=request.device.capability_major is None)
        self._observed = Observed()
        self._recorder = StepRecorder(
            known=self._known,
            reads=self._reads,
            profile=_profile(request),
            prepare=self._impose,
            around=self._regions.around_forward,
            place=self._placement.twin,
        )
        self._started = time.monotonic()

    @property
    def reached_backward(self) -> bool:
        return self._recorder.backward_passes > 0

    def open(self, stack: contextlib.ExitStack) -> None:
        """Installs all of it; `stack` closes it again, which only a script that never reaches a step sees."""
        profile = _profile(self._request)
        stack.enter_context(cuda_answers(self._request.device))
        stack.enter_context(one_rank(self._request.world_size, Path(self._request.script)))
        stack.enter_context(weightless_models(self._request.configs))
        stack.enter_context(loaders(self._request.micro_batch))
        stack.enter_context(parameters_on_meta())
        stack.enter_context(python_wrappers_open())
        stack.enter_context(autocast_regions(self._regions))
        stack.enter_context(remember_literals(self._known))
        watch_trainer(self._observed)
        if self._request.regime is not None and not self._request.regime.outputs_to_fp32:
            when_imported("accelerate.accelerator", _keep_outputs)
        stack.enter_context(self._placement)
        stack.enter_context(DeviceFunctions(profile, self._regions.state, False))
        watch(self._observed, stack, self._stepped)
        self._recorder.install()

    # -- what happens to the model -------------------------------------------------------------------

    def _impose(self, model: nn.Module) -> None:
        """The types of the strategy that is asked about, where they are not the script's own."""
        regime = self._request.regime
        if regime is not None:
            for parameter in model.parameters():
                wanted = (regime.trainable_weights or regime.weights) if parameter.requires_grad else regime.weights
                if parameter.is_floating_point():
                    parameter.data = parameter.data.to(getattr(torch, wanted))
            if regime.buffers_follow:
                for buffer in model.buffers():
                    if buffer.is_floating_point():
                        buffer.data = buffer.data.to(getattr(torch, regime.weights))
        if self._request.checkpointing is not None:
            set_checkpointing(model, self._request.checkpointing)

    # -- the end ---------------------------------------------------------------------------------------

    def _stepped(self, optimizer: Any) -> None:
        model = self._recorder.model
        if model is None:
            raise InputError("an optimizer steps before any model has run forward in training mode")
        owned = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if self._recorder.done or not any(id(parameter) in owned for parameter in model.parameters()):
            return
        if self._recorder.others:
            names = ", ".join(type(other).__name__ for other in self._recorder.others)
            raise InputError(f"{type(model).__name__} trains together with {names}: capture reads one model per step")
        passes = self._recorder.backward_passes
        recording = self._recorder.finish()
        model = inner_model(model)
        trace = fit((recording,), parameter_infos(model), buffer_sizes(model), layout_of(model), [])
        self._deliver(self._facts(model, passes), dump(trace))

    def _facts(self, model: nn.Module, passes: int) -> CapturedFacts:
        stack, loop = loop_of(self._observed)
        optimizers = tuple(optimizer_facts(made) for made in self._observed.optimizers)
        inputs = self._recorder.inputs
        config = getattr(model, "config", None)
        peft = getattr(model, "peft_config", None) or {}
        first = next(iter(peft.values()), None)
        return CapturedFacts(
            class_name=type(model).__name__,
            model_id=getattr(config, "_name_or_path", None) or None,
            spec=asdict(spec_of(model, model_id=self._request.script)),
            stack=stack,  # type: ignore[arg-type]
            loop=loop,
            precision=_precision(model, self._regions.seen),
            optimizer=planned_name(optimizers[0]) if optimizers else None,
            optimizers=optimizers,
            schedulers=tuple(dict.fromkeys(self._observed.schedulers)),
            micro_batch=micro_batch_of(inputs),
            seq_len=sequence_of(inputs),
            batch={
                name: f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
                for name, tensor in inputs.items()
            },
            accumulation_steps=passes,
            checkpointing="full" if getattr(model, "is_gradient_checkpointing", False) else "none",
            attention=_attention(config),
            peft="none" if first is None else "lora",
            lora_rank=getattr(first, "r", None),
            lora_targets=tuple(sorted(getattr(first, "target_modules", None) or ())),
            clipping=self._observed.clipping,
            compiled=self._observed.compiled,
            import_seconds=0.0,
        )


def _profile(request: CaptureRequest) -> KernelProfile:
    device = request.device
    if device.capability_major is None:
        return CpuProfile()
    return CudaProfile(capability=(device.capability_major, device.capability_minor), sm_count=device.sm_count)


def _precision(model: nn.Module, autocast: str | None) -> str:
    """As `--precision` names what parameters are stored in and forward computes in."""
    trained = [p.dtype for p in model.parameters() if p.requires_grad and p.is_floating_point()]
    if trained and all(dtype is torch.bfloat16 for dtype in trained):
        return "bf16"  # also under autocast: nothing of it is kept in fp32
    if autocast is not None:
        return {"bfloat16": "bf16-mixed", "float16": "fp16-mixed"}[autocast]
    return "fp32"


def _attention(config: Any) -> str:
    name = getattr(config, "_attn_implementation", None) or "sdpa"
    return {"flash_attention_2": "flash", "eager": "eager"}.get(name, "sdpa")


def _keep_outputs(accelerator: Any) -> None:
    """accelerate accelerator.py: prepare_model converts outputs to fp32 only where it opens autocast."""
    accelerator.convert_outputs_to_fp32 = lambda forward: forward
