"""What an evaluation takes, laid out behind training, against real loops on the CPU allocator's own events.

Compared is the most that stands during the evaluation above what stood before it. A Trainer's next batch, which
accelerate's DataLoaderShard has read ahead, is on the host: a CPU counts it, a GPU does not.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from gpu_plan.planner.memory.evaluation import Evaluated, with_evaluation
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.kinds.single import Single
from gpu_plan.planner.trace.inputs.batch import training_batch
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Optimizer, Precision, Stack
from tests.accuracy.architectures import ARCHITECTURES
from tests.support.cpu_reference import real_inputs, real_twin
from tests.support.evaluation_reference import evaluate_for_real, evaluation_bytes, loop_for_real
from tests.support.replay_cpu import counted

TOKENS, MICRO_BATCH = 40, 2
LABELS_AND_IDS = 2 * 8 * TOKENS
"""Bytes of one sample's inputs."""


def meta_of(architecture: str) -> nn.Module:
    return build_model(ARCHITECTURES[architecture].config(), attention="sdpa", dtype=torch.float32)


def planned(meta: nn.Module, stack: Stack, asked: Evaluated) -> RankStream:
    tracer = Tracer(
        model=meta,
        make_batch=lambda model, batch, length: training_batch(model, batch=batch, seq_len=length),
        profile=CpuProfile(threads=1),
        has_sequence=True,
        fold=False,
    )
    variant = StepVariant(
        regime=Regime(weights="float32"),
        checkpointing=Checkpointing.NONE,
        attention=Attention.SDPA,
        stack=stack,
        seq_len=TOKENS,
    )
    evaluating = replace(variant, evaluation="logits" if asked.keeps else "loss")
    training, evaluation = (
        Single()
        .rank(
            RankContext(
                trace=tracer.trace(way, size),
                precision=Precision("fp32"),
                optimizer=Optimizer("adamw-forloop"),
                stack=stack,
                clipping=True,
                checkpointing=Checkpointing.NONE,
                accumulation_steps=1,
                world_size=1,
                capability=None,
            )
        )
        .stream
        for way, size in ((variant, MICRO_BATCH), (evaluating, asked.batch))
    )
    return with_evaluation(training, evaluation, asked)


def most(stream: RankStream) -> int:
    """Most requested bytes during the evaluation above those that stood before it."""
    sizes = counted(stream.requested(MICRO_BATCH))
    live = np.cumsum(stream.event_sign * sizes[stream.event_tensor])
    inside = np.flatnonzero(stream.event_segment == stream.evaluation_segment)
    return int(live[inside].max() - live[inside[0] - 1])


def asked(batches: int, *, keeps: bool, batch: int = 4, trainer: bool = True) -> Evaluated:
    return Evaluated(batch=batch, batches=batches, ranks=1, keeps=keeps, concatenates=trainer)


def compare_trainer(architecture: str, batches: int, keeps: bool) -> None:
    meta, wanted = meta_of(architecture), asked(batches, keeps=keeps)
    ours = most(planned(meta, Stack.TRAINER, wanted))
    reference = evaluate_for_real(
        real_twin(meta, torch.float32, "sdpa"),
        seq_len=TOKENS,
        vocab=ARCHITECTURES[architecture].config()["vocab_size"],
        batch=wanted.batch,
        samples=wanted.batch * batches,
        keep_logits=keeps,
    )
    real, left = evaluation_bytes(reference)
    ahead = wanted.batch * LABELS_AND_IDS if batches > 1 and not keeps else 0
    assert (real, left) == (ours + ahead, 0)


def test_a_trainer_that_keeps_logits_holds_them_twice() -> None:
    compare_trainer("llama-3", 5, keeps=True)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["llama-3", "gpt2", "mixtral", "qwen2"])
@pytest.mark.parametrize(("batches", "keeps"), [(1, False), (3, False), (1, True), (2, True), (3, True)])
def test_a_trainer_s_evaluation(architecture: str, batches: int, keeps: bool) -> None:
    compare_trainer(architecture, batches, keeps)


@pytest.mark.parametrize("architecture", ["llama-3", pytest.param("mixtral", marks=pytest.mark.slow)])
def test_a_plain_loop_keeps_outputs_and_their_cache(architecture: str) -> None:
    meta, wanted = meta_of(architecture), asked(2, keeps=False, trainer=False)
    ours = most(planned(meta, Stack.PLAIN, wanted))
    model = real_twin(meta, torch.float32, "sdpa")
    train, rows = (
        real_inputs(training_batch(meta, batch=size, seq_len=TOKENS)) for size in (MICRO_BATCH, wanted.batch)
    )
    real, _ = evaluation_bytes(loop_for_real(model, train, [rows, rows]))
    assert real == ours


def test_the_comparison_can_fail() -> None:
    meta = meta_of("llama-3")
    one, kept = (most(planned(meta, Stack.TRAINER, asked(3, keeps=keeps))) for keeps in (False, True))
    assert one < kept
    assert most(planned(meta, Stack.PLAIN, asked(3, keeps=False))) > one
