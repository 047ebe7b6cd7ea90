"""The workload that a captured script describes: what is not given on the command line is what the script does."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpu_plan.planner.capture.request import CapturedFacts
from gpu_plan.planner.dtypes import is_floating
from gpu_plan.planner.errors import InputError, NotBuiltError, UsageError
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.training.given import Given
from gpu_plan.planner.strategy.base import autocast_regime
from gpu_plan.planner.strategy.known import all_traits, traits_of, unsharded
from gpu_plan.planner.strategy.registry import find_strategy
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.strategy.zero.common import deepspeed_regime
from gpu_plan.planner.workload.training import (
    Attention,
    Checkpointing,
    Optimizer,
    Peft,
    Precision,
    Stack,
    Workload,
)

if TYPE_CHECKING:
    from gpu_plan.planner.trace.variant import Regime
    from gpu_plan.planner.workload.settled import Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One value in which the command line and the script disagree."""

    what: str
    planned: str
    captured: str

    def line(self) -> str:
        return f"{self.what} is {self.planned} here, but {self.captured} in the script"


def overlay(given: Given, facts: CapturedFacts, script: str, world_size: int = 1) -> Given:
    """`given` with the script's own values where nothing was given, for a job on so many devices.

    InputError for a script whose optimizer no plan knows and none was named; UsageError for an adapter option, which
    only the script itself can make true.
    """
    _check_own(given, facts, script)
    optimizer = given.optimizer or (None if facts.optimizer is None else Optimizer(facts.optimizer))
    if optimizer is None:
        names = ", ".join(made.class_name for made in facts.optimizers) or "none"
        raise InputError(f"{script}: its optimizer ({names}) cannot be planned for: name one with --optimizer")
    strategy = _strategy(given.strategy, facts, script, world_size)
    batch_given = given.micro_batch is not None or given.global_batch is not None
    return replace(
        given,
        precision=given.precision or Precision(facts.precision),
        optimizer=optimizer,
        attention=given.attention or Attention(facts.attention),
        stack=given.stack or Stack(facts.stack),
        checkpointing=given.checkpointing or Checkpointing(facts.checkpointing),
        strategy=strategy,
        offload=given.offload or _offload(facts),
        dp_replicate=given.dp_replicate or _replicas(facts, strategy),
        settings=(*given.settings, *_own_settings(given, facts, strategy)),
        seq_len=given.seq_len or facts.seq_len,
        micro_batch=given.micro_batch if batch_given else facts.micro_batch,
        grad_accum=given.grad_accum if batch_given or given.grad_accum else facts.accumulation_steps,
        peft=Peft(facts.peft),
    )


def _strategy(given: str | None, facts: CapturedFacts, script: str, world_size: int) -> str | None:
    """A loop that wraps its model by itself has its strategy; UsageError for another one."""
    if facts.wrapper == "DataParallel" and world_size > 1:
        raise UsageError(
            f"{script} wraps its model in nn.DataParallel, one process for all devices, of which no plan is made: wrap"
            " it in DistributedDataParallel, or plan for one device"
        )
    own = [traits.name for traits in all_traits() if facts.wrapper in traits.wrapped_by]
    if facts.engine is not None:
        # Its stages hold 16-bit parameters and fp32 masters on one device too; stage 0 is planned as DDP.
        own = [traits.name for traits in all_traits() if traits.uses_deepspeed and traits.stage == facts.engine.stage]
        if own and world_size == 1 and facts.engine.offload == "none":
            raise UsageError(
                f"{script} runs DeepSpeed's engine with ZeRO-{facts.engine.stage}, which is planned for two devices or"
                " more, or with offload: give more --gpus"
            )
        own = own or [unsharded(world_size).name]
    elif world_size == 1:
        if facts.sharding is not None and facts.sharding.computed:
            raise UsageError(
                f"{script} computes in {facts.sharding.computed} by a policy of its own FSDP, which is planned for two"
                " devices or more: give more --gpus"
            )
        return given
    if facts.sharding is not None and facts.sharding.replicas > 1:
        own = [name for name in own if traits_of(name).replicates] or own
    if not own or given in own:
        return given
    if given is not None:
        raise UsageError(
            f"--strategy {given}: {script} wraps its model in {facts.wrapper} itself, which is {' or '.join(own)}:"
            " a launch cannot change it"
        )
    return own[0]


def _offload(facts: CapturedFacts) -> Offload | None:
    """What the script itself keeps on the host; None where nothing says."""
    if facts.engine is not None:
        return Offload(facts.engine.offload)
    if facts.sharding is not None:
        return Offload.ALL if facts.sharding.offloaded else Offload.NONE
    return None


def _replicas(facts: CapturedFacts, strategy: str | None) -> int | None:
    """Copies of the sharded whole, where the script's own mesh has some."""
    if facts.sharding is None or strategy is None or not traits_of(strategy).replicates:
        return None
    return facts.sharding.replicas or None


def _own_settings(given: Given, facts: CapturedFacts, strategy: str | None) -> tuple[tuple[str, str], ...]:
    """`--set` keys that the script's own FSDP decides, where the strategy knows them and none was given."""
    own = facts.sharding
    if own is None or strategy is None:
        return ()
    found = {}
    if own.reduced and own.reduced != own.computed:
        found["dtype.reduce"] = own.reduced
    if own.kept:
        found["fsdp.reshard_after_forward"] = "false"
    known, asked = traits_of(strategy).settings, dict(given.settings)
    return tuple((key, value) for key, value in found.items() if key in known and key not in asked)


def _check_own(given: Given, facts: CapturedFacts, script: str) -> None:
    """UsageError for an option about what the script itself decides and decides otherwise."""
    own: tuple[tuple[str, object, object], ...] = (
        ("--peft", given.peft, facts.peft),
        ("--seq-len", given.seq_len, facts.seq_len),
        ("--attention", given.attention, facts.attention),
        ("--stack", given.stack, facts.stack),
    )
    for option, wanted, captured in own:
        if wanted is not None and str(wanted) != str(captured):
            raise UsageError(
                f"{option} {wanted}: the script decides that, and has {captured}: give it its own argument after --"
            )
    if given.precision is not None and given.precision.is_float8:
        raise NotBuiltError(f"--precision {given.precision} for a training script")
    settings = dict(given.settings)
    traced = next((key for key in settings if key in _OF_A_MODEL), None)
    if given.fused_loss or traced is not None:
        option = "--fused-loss" if given.fused_loss else f"--set {traced}"
        raise UsageError(f"{option} applies to a model given by name: the script {script} is traced as it is")


_OF_A_MODEL = (
    "checkpoint.every",
    "checkpoint.offload",
    "checkpoint.reentrant",
    "kernels.liger",
    "loss.variant",
    "data.padding",
    "lora.dropout",
    "quant.double",
    "quant.experts",
)
_CAPTURED = (
    "precision",
    "optimizer",
    "attention",
    "stack",
    "checkpointing",
    "seq_len",
    "micro_batch",
    "grad_accum",
    "strategy",
    "offload",
)


def with_captured_basis(workload: Workload, given: Given, facts: CapturedFacts) -> Workload:
    """Notes which values came from the script."""
    basis: dict[str, Basis] = {}
    for name in _CAPTURED:
        known = name != "seq_len" or facts.seq_len is not None
        if known and getattr(given, name) is None and getattr(workload, name) is not None:
            basis[name] = "captured"
    own: dict[str, int | str | None] = {
        "wrapper": facts.wrapper or None,
        "starts_ranks": 1 if facts.starts_ranks else None,
        "micro_batch": facts.micro_batch,
        "grad_accum": facts.accumulation_steps,
        "seq_len": facts.seq_len,
        "rows": facts.rows if facts.rows != facts.micro_batch else None,
        "models": facts.models if facts.models > 1 else None,
        "called_parameters": (facts.called_parameters or None) if facts.models > 1 else None,
    }
    workload = replace(workload, script=tuple((key, value) for key, value in own.items() if value is not None))
    if workload.max_grad_norm is None:
        # transformers' Trainer measures the norm by clipping to infinity.
        norm = facts.clipping if facts.clipping is not None and math.isfinite(facts.clipping) else 0.0
        workload = replace(workload, clipping=facts.clipping is not None, max_grad_norm=norm)
        basis |= {"clipping": "captured", "max_grad_norm": "captured"}
    return workload.with_basis(**basis, peft="captured", script="captured")


def differences(values: Mapping[str, object], facts: CapturedFacts) -> tuple[Difference, ...]:
    """Where what was planned (by the workload's names, and `parameters`) is not what the script does.

    That is often the bug: a precision that the script overrides, frozen parameters, another sequence length.
    """
    compared: tuple[tuple[str, str, object], ...] = (
        ("number of parameters", "parameters", facts.spec.get("num_parameters")),
        ("number of trained parameters", "trainable_parameters", facts.spec.get("trainable_parameters")),
        ("precision", "precision", facts.precision),
        ("optimizer", "optimizer", facts.optimizer),
        ("micro batch", "micro_batch", facts.micro_batch),
        ("accumulation", "grad_accum", facts.accumulation_steps),
        ("sequence length", "seq_len", facts.seq_len),
        ("checkpointing", "checkpointing", facts.checkpointing),
        ("attention", "attention", facts.attention),
        ("adapters", "peft", facts.peft),
    )
    found = []
    for what, key, captured in compared:
        planned = values.get(key)
        if planned is not None and captured is not None and str(planned) != str(captured):
            found.append(Difference(what=what, planned=_shown(planned), captured=_shown(captured)))
    return tuple(found)


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def batch_in_words(facts: CapturedFacts) -> str:
    """The captured batch: its tensors, whether a mask is among them, and how long samples are that could come."""
    tensors = ", ".join(f"{name} {shape}" for name, shape in facts.batch.items())
    masked = any("mask" in name for name in facts.batch)
    words = f"the batch is as the script's loader gave it, {'with a' if masked else 'without a'} mask: {tensors}"
    if facts.rows != facts.micro_batch:
        words += f"; its {facts.micro_batch} samples are {facts.rows} rows"
    if facts.lengths is not None:
        of = facts.lengths
        words += (
            f"; it is the longest of {of.samples} samples, {of.longest} tokens, where a typical batch is padded to"
            f" {of.typical_batch} and the median sample has {of.median}"
        )
    return words


def natural_regime(facts: CapturedFacts) -> "Regime":
    """The types in which the script computes by itself, as the single-device strategy or DeepSpeed's names them."""
    if facts.engine is not None:
        return deepspeed_regime(Precision(facts.precision))
    precision, stack, peft = Precision(facts.precision), Stack(facts.stack), Peft(facts.peft)
    own = [traits.name for traits in all_traits() if facts.wrapper in traits.wrapped_by]
    if own and facts.sharding is not None and facts.sharding.computed:
        return find_strategy(own[0]).regime(precision, stack, peft)
    return autocast_regime(precision, stack, peft)


def stored_otherwise(spec: ModelSpec, facts: CapturedFacts) -> str | None:
    """What the script stores in another type than a plan of its precision places it in, in words; None where all agree.

    Strategies place parameters in the types of a regime; a script may mix them as it likes.
    """
    regime = natural_regime(facts)
    odd = [
        parameter
        for parameter in spec.parameters
        if parameter.tied_to is None and is_floating(parameter.dtype) and parameter.dtype != regime.of(parameter)
    ]
    if not odd:
        return None
    elements = sum(parameter.numel for parameter in odd)
    placed = regime.of(odd[0])
    return (
        f"{elements:,} elements ({odd[0].name}, ...) are stored in {odd[0].dtype}, and counted in {placed}:"
        " their memory is off by that"
    )
