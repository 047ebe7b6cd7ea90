"""Stages and schedules against the real ones: torch's orders of actions, and the whole model's logits."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.pipelining import schedules as real
from transformers import AutoConfig, AutoModelForCausalLM

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.pipeline.classes import CUT
from gpu_plan.planner.pipeline.schedules import Schedule, actions
from gpu_plan.planner.pipeline.stages import StageCut
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.parallel.stages import cut, stage_output
from tests.accuracy.architectures import ARCHITECTURES
from tests.support.ranks.piped.case import PipedCase
from tests.support.ranks.piped.replay import replayed, stream_of
from tests.support.sample import sample

CLASSES = {Schedule.INTERLEAVED: real.ScheduleInterleaved1F1B, Schedule.ZERO_BUBBLE: real.ScheduleInterleavedZeroBubble}

LETTERS = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}


def theirs(schedule: Schedule, rank: int, ranks: int, local: int, micro_batches: int) -> list[tuple[str, int, int]]:
    rounds = max(1, micro_batches // ranks)
    asked = SimpleNamespace(
        n_local_stages=local,
        microbatches_per_round=micro_batches // rounds,
        pp_group_size=ranks,
        _n_microbatches=micro_batches,
        _num_stages=ranks,
    )
    order = CLASSES[schedule]._calculate_single_rank_operations(asked, rank)  # type: ignore[attr-defined]
    return [(LETTERS[a.computation_type.name], a.stage_index, a.microbatch_index) for a in order if a is not None]


@pytest.mark.parametrize("schedule", CLASSES)
def test_every_rank_does_what_torch_orders(schedule: Schedule) -> None:
    for ranks in (2, 3, 4, 8):
        for local in (1, 2, 3) if schedule is Schedule.ZERO_BUBBLE else (2, 3):
            for micro_batches in (ranks, 2 * ranks, 3 * ranks, 8 * ranks):
                for rank in range(ranks):
                    ours = actions(schedule, rank, ranks, local, micro_batches)
                    named = [(str(a.kind), a.stage, a.micro_batch) for a in ours]
                    assert named == theirs(schedule, rank, ranks, local, micro_batches)


SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip


KEPT = ("cohere2", "deepseek_v3", "gemma3_text", "gpt2", "gpt_oss", "jamba", "llama", "qwen3_next")
"""One of each build: parallel blocks, latent attention, windows, absolute positions, experts, state spaces, plain."""


def model_of(kind: str) -> Any:
    """A tiny model of a type with four layers: of the accuracy suite where it stands there."""
    for known in ARCHITECTURES.values():
        if known.config().get("model_type") == kind:
            layers = "n_layer" if kind == "gpt2" else "num_hidden_layers"
            meta = build_model(known.config(**{layers: 4}))
            return type(meta)(copy.deepcopy(meta.config)).eval()
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZES)).eval()


@pytest.mark.parametrize("kind", sample(sorted(CUT), kept=KEPT))
def test_stages_one_after_the_other_are_the_whole_model(kind: str) -> None:
    torch.manual_seed(0)
    model = model_of(kind)
    ids = torch.randint(0, 100, (2, 24))
    with torch.no_grad():
        whole = model(input_ids=ids, use_cache=False).logits
        value = ids
        for first, end in ((0, 1), (1, 3), (3, 4)):
            stage = StageCut(first=first, end=end, layers=4)
            part = copy.deepcopy(model)
            cut(part, stage)
            value = stage_output(part, stage, value)
    assert torch.equal(value, whole)


@pytest.mark.parametrize("name", ["bert", "t5", "mamba", "vit", "pythia"])
def test_what_cannot_be_cut_is_named(name: str) -> None:
    model = build_model(ARCHITECTURES[name].config())
    with pytest.raises(CannotSplitError, match=type(model).__name__):
        cut(model, StageCut(first=0, end=1, layers=2))


@pytest.mark.parametrize(
    ("local", "schedule", "rest"), [(1, Schedule.ONE_F_ONE_B, 798_784), (2, Schedule.INTERLEAVED, 962_688)]
)
def test_stages_that_fsdp_shards_reduce_anew_in_every_step(local: int, schedule: Schedule, rest: int) -> None:
    """What stands between two steps: four real ranks' own figures (tests/accuracy/test_distributed_pipeline.py)."""
    case = PipedCase(architecture="llama-3", strategy="fsdp_pp", pipelines=2, schedule=schedule, local=local)
    figures = replayed(stream_of(case, 0), case.micro_batch)
    assert [figures["rest 0"], figures["rest 1"]] == [rest, rest]
