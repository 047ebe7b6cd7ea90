"""Options of a real Trainer, two updates on the CPU: peak and end of every pass and step equal to the plan's stream.

Optimizers are torch's with `foreach`, which is their own choice on CUDA, and hold the Trainer's two groups (trainer.py:
create_optimizer: norms and biases apart).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn, optim

from gpu_plan.planner.model.adapt import adapt
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.build.specs import spec_of
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.kinds.single import Single
from gpu_plan.planner.trace.inputs.batch import training_batch
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.losses import INSTALLED_LOSS, SMOOTHED
from gpu_plan.planner.workload.training import Attention, Checkpointing, Optimizer, Peft, Precision, Stack
from tests.accuracy.architectures import ARCHITECTURES
from tests.support.cpu_reference import real_twin
from tests.support.trainer_reference import TrainerFigures, measured_spans, planned_spans, train_for_real

TOKENS, MICRO_BATCH, HIDDEN = 40, 2, 64
LORA, TARGETS = Peft("lora"), ("q_proj", "v_proj")
CLASSIFIER = "LlamaForSequenceClassification"
FULL = Checkpointing.FULL
STATES = MICRO_BATCH * TOKENS * HIDDEN * 4
"""Bytes of one layer's hidden states."""


def two_groups(model: nn.Module) -> list[dict[str, Any]]:
    """As the Trainer makes them."""
    from transformers import Trainer

    decayed = set(Trainer.get_decay_parameter_names(None, model))  # type: ignore[arg-type]
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    return [{"params": [one for name, one in trained if (name in decayed) == whether]} for whether in (True, False)]


def adamw(model: nn.Module) -> Any:
    return optim.AdamW(two_groups(model), foreach=True)


def adafactor(model: nn.Module) -> Any:
    from transformers import Adafactor

    return Adafactor(two_groups(model), scale_parameter=False, relative_step=False, lr=1e-3)


def checkpointed(*, reentrant: bool) -> dict[str, Any]:
    return {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": reentrant}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is run on both sides; `options` are TrainingArguments' own."""

    optimizer: str = "adamw"
    make: Callable[[nn.Module], Any] = adamw
    accumulation: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    checkpointing: Checkpointing = Checkpointing.NONE
    reentrant: bool = False
    loss: str = INSTALLED_LOSS
    head: str = ""
    """Class of a classifier; a causal language model otherwise."""
    lora: bool = False

    @property
    def meta(self) -> nn.Module:
        values = dict(ARCHITECTURES["llama-3"].config())
        if self.head:
            values |= {"architectures": [self.head], "num_labels": 3, "pad_token_id": 0}
        return build_model(values, attention="sdpa", dtype=torch.float32)


def of_torch(made: Any, **given: Any) -> Callable[[nn.Module], Any]:
    return lambda model: made(two_groups(model), foreach=True, **given)


JOBS = {
    "accumulation with Adafactor": Job(optimizer="adafactor", make=adafactor, accumulation=2),
    "LoRA of a classifier": Job(lora=True, head=CLASSIFIER),
    "label smoothing": Job(options={"label_smoothing_factor": 0.1}, loss=SMOOTHED),
    "label smoothing of a classifier": Job(head=CLASSIFIER, options={"label_smoothing_factor": 0.1}, loss=SMOOTHED),
    "NEFTune": Job(options={"neftune_noise_alpha": 5.0}),
    "LoRA, reentrant checkpoints": Job(
        lora=True, checkpointing=FULL, options=checkpointed(reentrant=True), reentrant=True
    ),
    "reentrant checkpoints": Job(checkpointing=FULL, options=checkpointed(reentrant=True), reentrant=True),
    "checkpoints": Job(checkpointing=FULL, options=checkpointed(reentrant=False)),
    "RMSprop": Job(optimizer="rmsprop", make=of_torch(optim.RMSprop)),
    "NAdam": Job(optimizer="nadam", make=of_torch(optim.NAdam)),
    "RAdam": Job(optimizer="radam", make=of_torch(optim.RAdam)),
    "Adamax": Job(optimizer="adamax", make=of_torch(optim.Adamax)),
    "Adadelta": Job(optimizer="adadelta", make=of_torch(optim.Adadelta)),
    "Adagrad": Job(optimizer="adagrad", make=of_torch(optim.Adagrad)),
    "amsgrad": Job(optimizer="adamw-amsgrad", make=of_torch(optim.AdamW, amsgrad=True)),
}


def planned(job: Job, *, one_group: bool = False) -> TrainerFigures:
    base = model = job.meta
    if job.lora:
        model = adapt(base, spec_of(base, model_id="own"), Adapter(peft=LORA, rank=4, targets=TARGETS)).model
    tracer = Tracer(
        model=model,
        make_batch=lambda _, batch, length: training_batch(base, batch=batch, seq_len=length),
        profile=CpuProfile(threads=1),
        has_sequence=True,
        fold=False,
    )
    variant = StepVariant(
        regime=Regime(weights="float32"),
        checkpointing=job.checkpointing,
        checkpoint_reentrant=job.reentrant,
        loss=job.loss,
        attention=Attention.SDPA,
        stack=Stack.TRAINER,
        seq_len=TOKENS,
    )
    context = RankContext(
        trace=tracer.trace(variant, MICRO_BATCH),
        precision=Precision("fp32"),
        optimizer=Optimizer(job.optimizer),
        stack=Stack.ACCELERATE if one_group else Stack.TRAINER,
        clipping=True,
        checkpointing=job.checkpointing,
        accumulation_steps=job.accumulation,
        world_size=1,
        capability=None,
        peft=LORA if job.lora else Peft("none"),
    )
    return planned_spans(Single().rank(context).stream, MICRO_BATCH)


def real(job: Job) -> TrainerFigures:
    model = real_twin(job.meta, torch.float32, "sdpa")
    if job.lora:
        import peft

        kind = "SEQ_CLS" if job.head else "CAUSAL_LM"
        model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=list(TARGETS), task_type=kind))
    generator, rows = torch.Generator().manual_seed(2), []
    for _ in range(2 * MICRO_BATCH * job.accumulation):
        ids = torch.randint(5, 200, (TOKENS,), generator=generator)
        rows.append({"input_ids": ids, "labels": torch.tensor(1) if job.head else ids.clone()})
    options = {"gradient_accumulation_steps": job.accumulation, **job.options}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return measured_spans(train_for_real(model, rows, options, job.make), job.accumulation)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("name", JOBS)
def test_every_pass_and_step_equals(name: str) -> None:
    assert planned(JOBS[name]) == real(JOBS[name])


def test_what_norms_hold_is_stepped_behind_the_rest() -> None:
    """With one group, as a loop without the Trainer has it, the step's peak is higher by what the norms take."""
    assert planned(Job()).peaks[1] < planned(Job(), one_group=True).peaks[1]


def test_reentrant_checkpoints_hold_one_hidden_state_more_in_backward() -> None:
    """torch/utils/checkpoint.py: CheckpointFunction.backward names the gradient of its output, `args`, until all of the
    layer has run backward. With adapters the peak lies elsewhere."""
    ours, others = planned(JOBS["reentrant checkpoints"]), planned(JOBS["checkpoints"])
    apart = tuple(a - b for a, b in zip(ours.peaks, others.peaks, strict=True))
    assert apart == (STATES, 0, STATES, 0)
    assert ours.ends == others.ends


def test_a_smoothed_loss_keeps_its_own_logarithms() -> None:
    """transformers/trainer_pt_utils.py: LabelSmoother makes a copy of the shifted logits and the negated logarithms of
    their softmax, all of them for the sum over the vocabulary."""
    smoothed, own = planned(JOBS["label smoothing"]), planned(Job())
    assert smoothed.peaks[0] > own.peaks[0]
    assert smoothed.ends == own.ends
