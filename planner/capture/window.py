"""Opens everything around the script, and closes the capture when its first optimizer step is done."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._dynamo  # the first optimizer imports it: not in the midst of the answers
import torch.fx.experimental._config as fx_config
from torch import nn

from gpu_plan.planner.capture.answers.devices.accelerator import accelerator_answers
from gpu_plan.planner.capture.answers.devices.cuda import cuda_answers
from gpu_plan.planner.capture.answers.devices.defaults import defaults
from gpu_plan.planner.capture.answers.devices.graphs import Graphs
from gpu_plan.planner.capture.answers.diffused import weightless_diffusers
from gpu_plan.planner.capture.answers.distributed import launched_by_torchrun, one_rank
from gpu_plan.planner.capture.answers.flex import Flex
from gpu_plan.planner.capture.answers.generation import Generated, completions
from gpu_plan.planner.capture.answers.host_values import (
    LoopReads,
    inference_followed,
    numbers_formatted,
    scripted_or_plain,
)
from gpu_plan.planner.capture.answers.lengths import Lengths, longest_first
from gpu_plan.planner.capture.answers.loaders import loaders
from gpu_plan.planner.capture.answers.placement import (
    Placement,
    is_planned,
    parameters_on_meta,
    ranks_as_devices,
    weights_placed,
)
from gpu_plan.planner.capture.answers.precision import Regions, autocast_regions, scaled_in_sixteen_bits
from gpu_plan.planner.capture.answers.pretrained import weightless_models
from gpu_plan.planner.capture.answers.quantised import unpacked
from gpu_plan.planner.capture.answers.trainers.accelerate import outputs_kept, planned_not_asked_for
from gpu_plan.planner.capture.answers.trainers.liger import liger_mirrored
from gpu_plan.planner.capture.answers.trainers.transformers import parts_are_the_ranks, trainer_on_meta
from gpu_plan.planner.capture.answers.trl.hashed import hashed_by_shape
from gpu_plan.planner.capture.answers.trl.tiled import tiles_in_place
from gpu_plan.planner.capture.deepspeed.take import Engines
from gpu_plan.planner.capture.imports import when_imported
from gpu_plan.planner.capture.lean import does_without_transformers
from gpu_plan.planner.capture.request import CapturedFacts, CaptureRequest
from gpu_plan.planner.capture.sharding.own import sharding, wrapped
from gpu_plan.planner.capture.standin.data_sets import stand_in_for_data_sets, texts_beside
from gpu_plan.planner.capture.standin.downloads import stand_in_for_downloads
from gpu_plan.planner.capture.standin.encodings import stand_in_for_encodings
from gpu_plan.planner.capture.standin.metrics import stand_in_for_metrics
from gpu_plan.planner.capture.standin.tokenizers import stand_in_for_tokenizers
from gpu_plan.planner.capture.standin.told import Told
from gpu_plan.planner.capture.standin.vision import stand_in_for_transforms
from gpu_plan.planner.capture.watch.bystanders import bystanders, watch_placed
from gpu_plan.planner.capture.watch.described import (
    attention_of,
    buffers_of,
    called_parameters,
    config_of,
    flat_of,
    in_float8,
    notes_on,
    one_name,
    parameters_of,
    precision_of,
    spec_of_all,
    upper_bound,
)
from gpu_plan.planner.capture.watch.evaluators import Evaluators
from gpu_plan.planner.capture.watch.noticed import (
    COPY,
    HELD,
    MODEL,
    OPTIMIZER,
    RETAINED,
    Afterwards,
    Noticed,
    held_places,
)
from gpu_plan.planner.capture.watch.observe import (
    Observed,
    loop_of,
    optimizer_facts,
    takes_turns,
    waiting,
    watch,
    watch_trainer,
)
from gpu_plan.planner.capture.watch.step.recording import StepRecorder
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.build.lean.torchao import torchao_asked_again
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.inputs.known import KnownValues, remember_literals
from gpu_plan.planner.trace.kernels.scans.replace import fused_scans
from gpu_plan.planner.trace.kernels.temporaries import KernelProfile, kernel_profile
from gpu_plan.planner.trace.layout import layout_of
from gpu_plan.planner.trace.recording.fit import fit
from gpu_plan.planner.trace.recording.functions import DeviceFunctions, python_wrappers_open
from gpu_plan.planner.trace.recording.origins import Origins
from gpu_plan.planner.trace.recording.recorder import Held
from gpu_plan.planner.trace.setup.checkpointing import own_reentrant, set_checkpointing
from gpu_plan.planner.trace.setup.parameters import cast
from gpu_plan.planner.trace.storage import dump
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.adapters import NO_ADAPTERS, adapters_on
from gpu_plan.planner.workload.precisions import PLAIN_PRECISION, mixed_in

Deliver = Callable[[CapturedFacts, bytes], None]


class Window:
    """One script under watch."""

    def __init__(self, request: CaptureRequest, deliver: Deliver) -> None:
        self._request, self._deliver = request, deliver
        self._known = KnownValues()
        self._known.draws = True
        self._reads = LoopReads(self._known)
        self._regions = Regions(request.regime, on_cpu=request.device.capability_major is None)
        self._placement = Placement(
            self._known, on_cpu=request.device.capability_major is None, array=self._reads.array
        )
        origin = Origins(Path(request.script).parent, Path(request.working_directory)).current
        self._noticed = Noticed(origin)
        self._observed = Observed(construct=lambda: self._noticed.note(OPTIMIZER))
        self._afterwards: Afterwards | None = None
        self._turns = 0
        self._moved: list[nn.Parameter] = []
        """Parameters that had a gradient when an optimizer stepped."""
        self._recorder = StepRecorder(
            known=self._known,
            reads=self._reads,
            profile=_profile(request),
            prepare=self._impose,
            around=self._regions.around_forward,
            placement=self._placement,
            origin=origin,
            batch_size=lambda: self._lengths.batch_size,
            batches=lambda: self._lengths.batches,
            completions=lambda: self._generated.rows,
        )
        self._recorder.retained = lambda: self._noticed.note(RETAINED)
        self._recorder.joined = lambda: self._noticed.note(MODEL)
        self._recorder.met = self._fuse
        self._fused: dict[int, list[str]] = {}
        """What is assumed of the kernels of each model that ran."""
        self._kernels = contextlib.ExitStack()
        self._lengths, self._generated, self._graphs = Lengths(), Generated(), Graphs()
        self._flex = Flex(lambda: self._observed.compiles)
        self._evaluators = Evaluators()
        self._standins = Told(
            asked=request.standin, absent=frozenset(name for name, text in request.configs.items() if not text)
        )
        self._engines = Engines(request.world_size, request.regime is not None, self._clipped)
        self._started = time.monotonic()

    def _clipped(self, norm: float) -> None:
        self._observed.clipping = norm

    def _starts(self) -> None:
        self._observed.starts_ranks = True

    def _roll_out(self, *asked: Any) -> bool:
        return not self._request.rolls_out or self._recorder.passages.roll_out(*asked)

    @property
    def reached_backward(self) -> bool:
        return self._recorder.backward_passes > 0

    def open(self, stack: contextlib.ExitStack) -> None:
        """Installs all of it; `stack` closes it again, which only a script that never reaches a step sees."""
        if not does_without_transformers(Path(self._request.script)):
            flash = import_module("gpu_plan.planner.model.build.flash")  # transformers, before the answers stand
            torchao_asked_again()
            planned = self._request.device
            if planned.capability_major is not None:
                stack.enter_context(flash.flash_allowed())
                capability = (planned.capability_major, planned.capability_minor)
                stack.enter_context(flash.hub_answered(capability))
        profile = _profile(self._request)
        device = self._request.device
        # By itself a process takes one GPU: with more, transformers' Trainer would wrap the model in DataParallel.
        joins = launched_by_torchrun(Path(self._request.script), self._request.world_size)
        seen = device.count if joins else 1
        stack.enter_context(cuda_answers(device, seen, self._graphs))
        stack.enter_context(accelerator_answers(device, seen))
        stack.enter_context(self._flex.answered())
        if device.capability_major is not None:
            stack.enter_context(defaults(is_planned, self._placement.make_default))
            tiles_in_place()
        hashed_by_shape()
        # What a distribution asks of its parameters are their values.
        stack.enter_context(mock.patch.object(torch.distributions.Distribution, "_validate_args", False))
        stack.enter_context(one_rank(self._request.world_size, Path(self._request.script), self._starts))
        configs = self._request.configs
        when_imported("transformers.trainer", parts_are_the_ranks)
        when_imported("transformers.trainer", liger_mirrored(device, stack))
        when_imported("transformers.configuration_utils", lambda _: stack.enter_context(weightless_models(configs)))
        when_imported("diffusers.models.modeling_utils", lambda home: stack.enter_context(weightless_diffusers(home)))
        for home in ("lightning.fabric.utilities.init", "lightning_fabric.utilities.init"):
            when_imported(home, lambda found: stack.enter_context(weights_placed(found)))
        stack.enter_context(loaders(self._request.micro_batch))
        stack.enter_context(longest_first(self._lengths))
        stack.enter_context(completions(self._generated, self._roll_out))
        stack.enter_context(parameters_on_meta())
        stack.enter_context(ranks_as_devices())
        stack.enter_context(python_wrappers_open())
        stack.enter_context(numbers_formatted())
        stack.enter_context(inference_followed())
        stack.enter_context(scripted_or_plain())
        # torch/_meta_registrations.py: nonzero: of a mask whose values follow from weights every element counts.
        stack.enter_context(mock.patch.object(fx_config, "meta_nonzero_assume_all_nonzero", True))
        stack.enter_context(autocast_regions(self._regions))
        if self._request.regime is not None:
            stack.enter_context(scaled_in_sixteen_bits())
        stack.enter_context(remember_literals(self._known))
        self._stand_in()
        watch_trainer(self._observed)
        self._engines.watch()
        self._evaluators.watch()
        self._noticed.watch(stack)
        self._observed.begin_step = self._recorder.pause
        self._recorder.turns = lambda: takes_turns(self._observed) and self._engines.facts is None
        if self._request.follow and self._request.device.capability_major is not None:
            watch_placed(stack, lambda: self._noticed.note(COPY))
        if self._request.device.capability_major is None:
            when_imported("accelerate.state", planned_not_asked_for)
            when_imported("transformers.training_args", trainer_on_meta)
        if self._request.regime is not None and not self._request.regime.outputs_to_fp32:
            when_imported("accelerate.accelerator", outputs_kept)
        stack.enter_context(self._placement)
        stack.enter_context(DeviceFunctions(profile, self._regions.state, False))
        watch(self._observed, stack, self._stepped)
        self._recorder.install()

    def _on_the_host(self) -> list[str]:
        """Said of a script that never uses the devices that are planned."""
        if self._placement.placed or self._request.device.capability_major is None:
            return []
        return ["the script puts nothing on a GPU: it trains on the host, and is planned as if it moved its model"]

    def _in_turns(self) -> list[str]:
        """Said of an iteration in which several optimizers step one after another."""
        if not self._recorder.open:
            return []
        return [
            f"optimizers take turns: an iteration of {self._turns + 1} optimizer steps and"
            f" {self._recorder.backward_passes} backward passes is planned as one step, with the optimizers' own work"
            " at its end"
        ]

    @property
    def waits_for(self) -> str:
        """The class of an optimizer whose turn has not come; empty where no iteration of several is being recorded."""
        late = [made for made in self._observed.made if made not in self._observed.optimizers]
        return type(late[0]).__name__ if late and self._recorder.open else ""

    def _alone(self, loop: str, wrapped: bool) -> list[str]:
        """Said of a plain loop that is planned for several ranks and would run whole on each."""
        if loop != "plain" or wrapped or self._request.world_size == 1:
            return []
        return [
            "the script wraps its model in nothing, and is planned as if it did: as it is it trains on one device, and"
            " each further process would be a job of its own"
        ]

    def _stand_in(self) -> None:
        """For what is not at hand: data, tokenizers, metrics, texts; without `--data standin` it ends the capture."""
        script, told = Path(self._request.script), self._standins
        stand_in_for_data_sets(told, lambda: texts_beside(script), self._request.arguments)
        stand_in_for_tokenizers(told)
        stand_in_for_encodings(told)
        stand_in_for_downloads(told)
        stand_in_for_metrics(told)
        stand_in_for_transforms(told)

    # -- what happens to the model -------------------------------------------------------------------

    def _fuse(self, model: nn.Module) -> None:
        """From its first forward pass on a model runs sequence kernels fused, as by name: transformers' fallbacks loop
        over chunks and tokens in Python, and hold other memory."""
        if id(model) not in self._fused and _profile(self._request).fused_scans:
            self._fused[id(model)] = self._kernels.enter_context(fused_scans(model))

    def _impose(self, model: nn.Module) -> None:
        """The types of the strategy that is asked about, where they are not the script's own."""
        regime = self._request.regime or _own_regime()
        if regime is not None:
            cast(model, regime)
        if self._request.checkpointing is not None:
            set_checkpointing(model, self._request.checkpointing, reentrant=own_reentrant(model))

    # -- the end ---------------------------------------------------------------------------------------

    def end(self) -> None:
        """The script is over: what was captured is delivered, if anything was."""
        if self._afterwards is not None:
            self._afterwards.end()

    def _stepped(self, optimizer: Any) -> None:
        if self._afterwards is not None:
            self._afterwards.stepped()
            return
        model = self._recorder.model
        if model is None:
            raise InputError("an optimizer steps before any model has run forward in training mode")
        models = [model, *self._recorder.others]
        owned = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        self._moved += [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not _any_in(owned, models):
            made = {id(p) for one in self._observed.made for group in one.param_groups for p in group["params"]}
            if not _any_in(made, models):
                self._recorder.start_over()
            return
        if waiting(self._observed):
            return  # several optimizers after one backward pass: the last one ends the step
        late = [made for made in self._observed.made if made not in self._observed.optimizers]
        if late:
            self._turns += 1
            if not self._recorder.open or self._turns > _MOST_TURNS:
                raise InputError(
                    f"optimizers take turns ({type(optimizer).__name__} steps first, {type(late[0]).__name__} has no"
                    f" gradients after {self._turns} steps): capture reads one iteration of all of them"
                )
            self._recorder.resume()
            return
        unknown = _not_recorded(models, self._observed.optimizers)
        if self._recorder.open and unknown:
            raise InputError(f"optimizers take turns, and what {unknown} trains was not seen to run: no plan is made")
        for other in self._recorder.others:
            if not _trained(other, self._observed.optimizers):
                other.requires_grad_(False)  # a reference under no_grad, which TRL leaves as it was loaded
        for parameter in self._moved:
            parameter.requires_grad_(True)  # Lightning's `toggle_optimizer` freezes what another optimizer trains
        idle = bystanders(models) if self._request.follow else []
        for module in idle:
            module.requires_grad_(False)  # nothing trains it: no gradient and no state is planned for it
        models += idle
        flat = flat_of(models)
        if flat:
            raise InputError(
                f"its parameters are parts of flat ones that it makes itself ({flat}), a sharding of its own that no"
                " strategy here is"
            )
        passes = 1 if self._recorder.open else self._recorder.backward_passes // self._recorder.each
        alive = self._recorder.alive() if self._request.follow else []
        recording = self._recorder.finish()
        trace = fit((recording,), parameters_of(models), buffers_of(models), layout_of(model), [])
        facts = self._facts(models, passes)

        def deliver(held: list[Held]) -> None:
            found = held_places(recording.raw, held)
            places = {**self._noticed.places, **({HELD: found.place} if found.place else {})}
            if idle and MODEL not in places and COPY in places:
                places[MODEL] = places[COPY]
            self._deliver(replace(facts, places=places), dump(replace(trace, held=found.tensors)))

        if not alive:
            deliver([])
        self._afterwards = Afterwards(alive, deliver, time.monotonic() - self._started)
        self._recorder.afterwards = self._afterwards.forward

    def _facts(self, models: list[nn.Module], passes: int) -> CapturedFacts:
        model = models[0]
        stack, loop = loop_of(self._observed)
        optimizers = tuple(optimizer_facts(made) for made in self._observed.optimizers)
        inputs, samples = self._recorder.inputs, self._recorder.samples
        config = getattr(model, "config", None)
        peft = getattr(model, "peft_config", None) or {}
        first = next(iter(peft.values()), None)
        engine = self._engines.facts
        return CapturedFacts(
            class_name=type(model).__name__,
            model_id=getattr(config, "_name_or_path", None) or None,
            spec=asdict(spec_of_all(models, self._request.script)),
            config=config_of(model),
            stack=stack,
            loop=loop,
            precision=self._precision(models),
            optimizer=one_name(optimizers),
            optimizers=optimizers,
            schedulers=tuple(dict.fromkeys(self._observed.schedulers)),
            micro_batch=samples,
            rows=self._recorder.rows,
            lengths=self._lengths.sampled,
            seq_len=self._recorder.seq_len,
            batch={
                name: f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
                for name, tensor in inputs.items()
            },
            accumulation_steps=passes,
            checkpointing="full" if getattr(model, "is_gradient_checkpointing", False) else "none",
            attention=attention_of(config),
            peft=NO_ADAPTERS if first is None else adapters_on(quantised=any(map(unpacked, models))),
            lora_rank=getattr(first, "r", None),
            lora_targets=tuple(sorted(getattr(first, "target_modules", None) or ())),
            wrapper="deepspeed" if engine else _wrapper(loop),
            starts_ranks=self._observed.starts_ranks,
            engine=engine,
            sharding=sharding.facts() if (sharding.types and loop == "plain") or _asked(loop) else None,
            clipping=self._observed.clipping,
            compiled=self._observed.compiled,
            models=len(models),
            called_parameters=called_parameters(models),
            passages=self._recorder.passages.of(models),
            rolled_out_rows=self._generated.rows,
            notes=(
                *notes_on(self._observed, models, self._recorder.evaluations.left_out, self._evaluators.left_out),
                *upper_bound(self._known.unknown_masks),
                *self._generated.lines(),
                *self._graphs.lines(),
                *self._flex.lines(),
                *dict.fromkeys(line for lines in self._fused.values() for line in lines),
                *self._on_the_host(),
                *self._alone(loop, bool(wrapped) or engine is not None),
                *self._in_turns(),
            ),
            standins=tuple(self._standins.lines),
        )

    def _precision(self, models: list[nn.Module]) -> str:
        """As `--precision` has it: DeepSpeed's engine keeps fp32 masters beside 16-bit parameters."""
        eighth = next((one for model in models for one in model.modules() if in_float8(one)), None)
        if eighth is not None:
            raise InputError(
                f"its {type(eighth).__name__} layers compute in float8, which is not planned for a script: --model with"
                " --precision fp8-mixed plans the model by name"
            )
        if self._engines.dtype is not None:
            return mixed_in(self._engines.dtype)
        if sharding.computed is not None and sharding.computed.itemsize == 2:
            if loop_of(self._observed)[1] != "plain":
                raise InputError(
                    f"its trainer's own FSDP computes in {sharding.computed} by a policy of mixed precision, which a"
                    " capture does not follow: plan the model by name with --precision"
                )
            # Shards, their gradients' sums and the optimizer's state stay in the type that the model was loaded in.
            return mixed_in(str(sharding.computed).removeprefix("torch."))
        if self._request.regime is not None:
            return PLAIN_PRECISION  # Types are imposed: what the script's own are was asked of its own run.
        region = self._regions.seen
        found = precision_of(models, region)
        if sharding.types and region is not None and found == mixed_in(region):
            raise InputError(
                "its own FSDP gathers parameters in float32 under torch.autocast, of which no plan is made: with"
                f" MixedPrecisionPolicy(param_dtype=torch.{region}) they are gathered in 16 bits"
            )
        return found


_OWN_LOOPS = ("plain", "lightning")
"""Loops whose wrapping no launch changes."""


def _asked(loop: str) -> str:
    """What wraps the model where a loop of Accelerate's own says so itself."""
    return sharding.asked if loop == "accelerate" else ""


def _wrapper(loop: str) -> str:
    return _asked(loop) or (wrapped[0] if wrapped and loop in _OWN_LOOPS else "")


def _any_in(owned: set[int], models: list[nn.Module]) -> bool:
    return any(id(parameter) in owned for one in models for parameter in one.parameters())


def _own_regime() -> Regime | None:
    """Types in which the script's own FSDP gathers parameters by a policy, and keeps buffers; None without one."""
    if sharding.computed is None:
        return None
    name = str(sharding.computed).removeprefix("torch.")
    return Regime(weights=name, buffers_follow=any(one.buffers is not None for one in sharding.types))


def _profile(request: CaptureRequest) -> KernelProfile:
    device = request.device
    capability = None if device.capability_major is None else (device.capability_major, device.capability_minor)
    return kernel_profile(DeviceKind(capability=capability, sm_count=device.sm_count))


_MOST_TURNS = 16
"""Steps of optimizers before the last one has had its turn."""


def _not_recorded(models: list[nn.Module], optimizers: list[Any]) -> str:
    """The class of an optimizer none of whose parameters is the models'; empty where there is none."""
    owned = {id(parameter) for model in models for parameter in model.parameters()}
    groups = ((made, [p for group in made.param_groups for p in group["params"]]) for made in optimizers)
    return next((type(made).__name__ for made, own in groups if not any(id(p) in owned for p in own)), "")


def _trained(model: nn.Module, optimizers: list[Any]) -> bool:
    """Whether any of its parameters has a gradient or stands in an optimizer."""
    owned = {id(parameter) for made in optimizers for group in made.param_groups for parameter in group["params"]}
    return any(parameter.grad is not None or id(parameter) in owned for parameter in model.parameters())
