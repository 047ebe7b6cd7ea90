"""A vision model that attends window by window: what is told of a micro batch equals what is recorded there."""

from typing import Any

import pytest
import torch
from torch import nn

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.trace.recording.fit import Recording
from gpu_plan.planner.trace.recording.repeats.bodies import Body, UnlikeError, bodies_of
from gpu_plan.planner.trace.recording.repeats.grown import FEW, MORE, Growth, growth_of, proved, same
from gpu_plan.planner.trace.recording.repeats.named import Called, called, row
from gpu_plan.planner.trace.step import Session
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.trace.test_fold_ranges import tracer_of

VISION = {
    "depth": 5,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_heads": 2,
    "out_hidden_size": 64,
    "fullatt_block_indexes": [4],
    "window_size": 112,
    "patch_size": 14,
}
TEXT = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 512,
    "max_position_embeddings": 1024,
    "rope_parameters": {"rope_type": "default", "mrope_section": [4, 6, 6], "rope_theta": 10000.0},
}
TOKENS = {"image_token_id": 500, "video_token_id": 501, "vision_start_token_id": 502, "vision_end_token_id": 503}


ONE = (Body(end=6, length=2),)


def windowed(attention: str = "sdpa") -> nn.Module:
    config = {
        "model_type": "qwen2_5_vl",
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "text_config": {**TEXT, "model_type": "qwen2_5_vl_text"},
        "vision_config": {**VISION, "model_type": "qwen2_5_vl"},
        **TOKENS,
    }
    return build_model(config, attention=attention)


def asked(checkpointing: Checkpointing = Checkpointing.NONE, **given: Any) -> StepVariant:
    return StepVariant(
        regime=given.pop("regime", Regime(weights="bfloat16")),
        checkpointing=checkpointing,
        attention=Attention.SDPA,
        stack=Stack.ACCELERATE,
        seq_len=320,
        **given,
    )


def recordings(tracer: Tracer, variant: StepVariant) -> tuple[Session, Growth, Recording]:
    """A session of a variant, what one sample more is, and the recording of the largest size."""
    tracer._prepare(variant)
    session = Session(model=tracer.model, variant=variant, profile=tracer.profile, folds=tracer.folds())
    low, more = (tracer._record(session, variant, size) for size in (FEW, MORE))
    growth = growth_of(low, more)
    high, one = (tracer._recording(session, variant, size, keep, low.loops) for size, keep in ((16, FEW), (FEW, 1)))
    assert proved(growth, high, more, one)
    return session, growth, high


@pytest.mark.parametrize(
    "variant",
    [
        asked(),
        asked(Checkpointing.FULL),
        asked(Checkpointing.SELECTIVE),
        asked(Checkpointing.FULL, checkpoint_every=2),
        asked(regime=Regime(weights="float32", autocast="bfloat16", outputs_to_fp32=True)),
    ],
    ids=["none", "full", "selective", "every second", "autocast"],
)
def test_what_is_told_is_what_is_recorded(variant: StepVariant) -> None:
    tracer = tracer_of(windowed())
    session, growth, high = recordings(tracer, variant)
    assert sum(growth.cut) > 0
    for size in (4, 7):
        recording = tracer._record(session, variant, size)
        assert same(growth.at(high, size), recording)
    assert not same(growth.at(high, 8), tracer._record(session, variant, 7))


def test_loops_that_are_not_proved_are_recorded() -> None:
    """Eager attention of whole images: what its backward names of one sample alone is not what it names of two."""
    tracer, variant = tracer_of(windowed("eager")), asked()
    trace = tracer.trace(variant, 5)
    assert trace.samples == (5,)
    assert list(tracer.recorded.grown.values()) == [None]


def test_a_size_between_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    record = Session.record

    def counted(self: Session, batch: Any, micro_batch: int, tokens: int, **loops: Any) -> Recording:
        made.append((micro_batch, loops["keep"]))
        return record(self, batch, micro_batch, tokens, **loops)

    monkeypatch.setattr(Session, "record", counted)
    tracer = tracer_of(windowed())
    told = [tracer.trace(asked(), size) for size in (2, 6, 16, 9)]
    assert [trace.samples for trace in told] == [(2,), (6,), (16,), (9,)]
    assert sorted(set(made)) == [(2, 0), (2, 1), (3, 0), (16, 2)]
    made.clear()
    assert tracer.trace(asked(), 33).samples == (33,)
    assert made == [(64, 2), (2, 1)]
    made.clear()
    tracer.trace(asked(Checkpointing.FULL), 12)
    assert sorted(set(made)) == [(2, 0), (2, 1), (3, 0), (16, 2)]


def test_a_step_that_no_loop_tells_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel's temporary that is not in proportion to the micro batch may bend between the recorded ones."""
    tracer, variant = tracer_of(windowed()), asked()
    scratch = type(tracer.profile).scratch
    bent = [1000]

    def other(self: Any, name: str, args: Any, written: Any) -> list[int]:
        found: list[int] = scratch(self, name, args, written)
        return [*found, *bent, 0 * len(found)] if name == "embedding" else found

    monkeypatch.setattr(type(tracer.profile), "scratch", other)
    made: list[int] = []
    recording = Tracer._record

    def counted(self: Tracer, session: Session, variant: StepVariant, micro_batch: int) -> Recording:
        made.append(micro_batch)
        bent[0] = 1000 + micro_batch**2
        return recording(self, session, variant, micro_batch)

    monkeypatch.setattr(Tracer, "_record", counted)
    assert tracer.trace(variant, 5).samples == (5,)
    assert made == [2, 3, 5]


def test_where_one_sample_more_stands() -> None:
    few, more = (torch.tensor(one).numpy() for one in ([1, 2, 3, 2, 3, 9, 4, 8], [1, 2, 3, 2, 3, 2, 3, 9, 4, 4, 8]))
    assert [(body.begin, body.end) for body in bodies_of(few, more)] == [(3, 5), (6, 7)]
    with pytest.raises(UnlikeError):
        bodies_of(few, torch.tensor([1, 2, 3, 2, 3, 9, 7, 4, 8]).numpy())


def test_what_a_run_names() -> None:
    own = called([(1, 0, (0, 0, 5)), (2, 0, (0, 0, 5)), (2, 1, (0, 1, 5))])
    assert own == Called(0, 5, by_run=1)
    other_end = called([(1, 0, (0, 0, 5)), (2, 0, (0, 1, 5)), (2, 1, (0, 0, 5))])
    assert [other_end.at(run, [4], ONE) for run in range(4)] == [(0, 3 - run, 5) for run in range(4)]
    before = called([(1, 0, (-1, 0, 2)), (2, 0, (-1, 0, 2)), (2, 1, (0, 0, 5))])
    assert [before.at(run, [3], ONE) for run in range(3)] == [(-1, 0, 2), (0, 0, 5), (0, 1, 5)]
    with pytest.raises(UnlikeError):
        called([(1, 0, (-1, 0, 2)), (2, 0, (-1, 0, 2)), (2, 1, (-1, 0, 3))])


def test_what_is_joined_is_more_with_each_sample() -> None:
    joined = row([(1, 0, [(-1, 0, 1), (0, 0, 5)]), (2, 0, [(-1, 0, 1), (0, 0, 5), (0, 1, 5)])])
    assert joined.at(0, [3], ONE, 3) == [(-1, 0, 1), (0, 0, 5), (0, 1, 5), (0, 2, 5)]
