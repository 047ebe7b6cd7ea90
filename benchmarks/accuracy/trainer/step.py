"""The step of a row as it ran: the installed modelling code with what the run had otherwise put into it.

transformers' Trainer around AdamW with foreach and clipping, one micro step. Fused kernels cannot run without a GPU:
`kernels` and `adapters` hold functions that save, allocate and overwrite the same tensors.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from benchmarks.accuracy.row import SetAside
from benchmarks.accuracy.trainer import kernels
from benchmarks.accuracy.trainer.adapters import fuse_adapters
from benchmarks.accuracy.trainer.attention import use_frequencies_per_layer, use_repeated_keys
from benchmarks.accuracy.trainer.held_inputs import with_held_inputs
from benchmarks.accuracy.trainer.setup import INSTALLED, Setup
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.adapt import adapt
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.build.specs import spec_of
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch, training_batch
from gpu_plan.planner.trace.kernels.temporaries import kernel_profile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Checkpointing, Peft, Stack


def build_as_run(setup: Setup) -> Any:
    """The model on meta with what the run put into it."""
    config = json.loads(setup.config)
    if "vocab_size" in config:
        config["vocab_size"] += setup.added_tokens
    model: Any = build_model(config, attention=str(setup.attention))
    if setup.layer_frequencies:
        use_frequencies_per_layer(model)
    if setup.repeats_keys:
        use_repeated_keys(model)
    if setup.reentrant:
        kernels.use_reentrant_checkpointing(model)
    if setup.fused_kernels:
        kernels.use_fused_norms(model)
    _put_loss(model, setup)
    return model


def _put_loss(model: Any, setup: Setup) -> None:
    if setup.loss == INSTALLED:
        return
    if not hasattr(model, "lm_head") or not hasattr(model, "model"):
        raise SetAside(f"the {setup.loss} loss of its software around {type(model).__name__} is not mirrored")
    if setup.loss == "fused-linear":
        kernels.use_fused_linear_loss(model)
        return
    if setup.fp32_logits:
        kernels.use_fp32_logits(model)
    model.loss_function = kernels.in_place_loss if setup.loss == "in-place" else kernels.shifted_loss


def batch_with_mask(model: nn.Module, batch: int, seq_len: int) -> TrainingBatch:
    """The collator of those runs adds a mask of ones."""
    made = training_batch(model, batch=batch, seq_len=seq_len)
    ones = torch.ones(batch, seq_len, dtype=torch.int64)
    return TrainingBatch(
        tensors={**made.tensors, "attention_mask": ones.to("meta")},
        values={**made.values, "attention_mask": ones},
        loss=made.loss,
        notes=made.notes,
    )


@contextlib.contextmanager
def replaced(model: nn.Module, setup: Setup) -> Iterator[None]:
    """Within, the modeling module's functions are those of the run."""
    with contextlib.ExitStack() as stack:
        if setup.fused_kernels:
            stack.enter_context(kernels.fused_rotary(type(model).__module__))
        yield


def trace_of(setup: Setup, regime: Regime, micro_batch: int) -> StepTrace:
    """The step as the run made it, its adapters included."""
    base = build_as_run(setup)
    model = base if setup.lora is None else _adapted(base, setup)

    def batch(_: nn.Module, micro: int, seq_len: int) -> TrainingBatch:
        return batch_with_mask(base, micro, seq_len)

    profile = kernel_profile(device_kind(parse_cluster(setup.cluster).gpu))
    tracer = Tracer(model=model, make_batch=batch, profile=profile, has_sequence=True)
    variant = StepVariant(
        regime=regime,
        checkpointing=Checkpointing.FULL if setup.checkpointing else Checkpointing.NONE,
        attention=setup.attention,
        stack=Stack.TRAINER,
        seq_len=setup.seq_len,
    )
    with replaced(base, setup):
        trace = tracer.trace(variant, micro_batch)
    held = setup.lora is not None and setup.strategy == "fsdp1" and setup.checkpoints_outside
    return with_held_inputs(trace) if held else trace


def _adapted(base: Any, setup: Setup) -> nn.Module:
    """`quantised`: bitsandbytes' NF4 with quantised scales (fms-acceleration plugins/accelerated-peft/src/
    fms_acceleration_peft/framework_plugin_bnb.py), whose own preparation upcasts nothing."""
    assert setup.lora is not None
    rank, targets, dropout = setup.lora
    if setup.peft == Peft("lora") and setup.checkpointing and setup.reentrant:
        # trl 0.11 and 0.13 (trainer/sft_trainer.py): reentrant checkpointing cannot do without.
        base.enable_input_require_grads()
    adapter = Adapter(
        peft=setup.peft,
        rank=rank,
        targets=targets,
        dropout=dropout,
        double_quant=setup.quantised,
        compute_dtype=setup.precision.compute_dtype,
    )
    model = adapt(base, spec_of(base, model_id=setup.model), adapter).model
    if setup.fuses_adapters:
        fuse_adapters(model)
    return model
