"""Megatron-core's T5 and BERT replayed by a GPT's parts: parameters by sums by hand, and what their layers keep."""

from dataclasses import replace

import pytest

from benchmarks.accuracy.megatron.encoders.bert import Bert
from benchmarks.accuracy.megatron.encoders.t5 import T5
from benchmarks.accuracy.megatron.jobs import Job, profile
from benchmarks.accuracy.megatron.others import as_gpt, other_of
from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.strategy.megatron.states import StateRules
from gpu_plan.planner.trace.events import Category

HIDDEN, WIDE, WORDS, POSITIONS = 256, 1024, 1024, 128
MODEL = Architecture(
    layers=3, hidden=HIDDEN, intermediate=WIDE, heads=4, groups=4, head_dim=64, vocabulary=WORDS,
    gated=False, norm="layer", biases=True, tied=True, positions=POSITIONS, rotary=False,
)  # fmt: skip
LAYOUT = Layout(attention="unfused", hidden_dropout=0.1, attention_dropout=0.1, fused_gradients=False)
JOB = Job(
    model=MODEL,
    layout=LAYOUT,
    rules=StateRules(data_parallel=2, expert_data_parallel=1, distributed=False),
    micro_batch=2,
    micro_batches=2,
    seq_len=POSITIONS,
    capability=(9, 0),
    other=T5(decoder_layers=2, decoder_len=32),
)
NORM = 2 * HIDDEN
ATTENDS = 4 * HIDDEN * HIDDEN + 4 * HIDDEN
LAYER = ATTENDS + 2 * HIDDEN * WIDE + WIDE + HIDDEN + 2 * NORM
EMBEDDED = (WORDS + POSITIONS) * HIDDEN


@pytest.mark.parametrize("local", [False, True])
def test_t5_holds_both_stacks_and_a_bias_of_the_vocabulary(local):
    job = replace(JOB, layout=replace(LAYOUT, local=local, attention="local" if local else "unfused"))
    parameters = EMBEDDED + 3 * LAYER + 2 * (LAYER + ATTENDS + NORM) + 2 * NORM + WORDS
    assert profile(job, 0).at_peak[Category.OPTIMIZER_STATE] == pytest.approx(12 * parameters, rel=2e-3)


def test_a_decoder_keeps_what_it_attends_to():
    deep = replace(JOB, other=T5(decoder_layers=4, decoder_len=32))
    more = profile(deep, 0).at_peak[Category.ACTIVATIONS] - profile(JOB, 0).at_peak[Category.ACTIVATIONS]
    tokens, encoded = 2 * 32, 2 * POSITIONS
    scores = 2 * 4 * (32 * 32 + 32 * POSITIONS)
    # Keys and values of all encoded tokens, in 16 bits; probabilities before and after dropout, and its mask.
    least = 2 * encoded * 2 * HIDDEN + scores * (2 + 2 + 1) + 2 * tokens * (2 * WIDE + 8 * HIDDEN)
    assert more / 2 == pytest.approx(least, rel=0.2)


@pytest.mark.parametrize("local", [False, True])
def test_bert_has_its_heads_on_the_last_stage(local):
    layout = replace(LAYOUT, pipeline=3, local=local, attention="local" if local else "unfused")
    job = replace(JOB, layout=layout, other=Bert())
    heads = WORDS * HIDDEN + WORDS + 2 * (HIDDEN * HIDDEN + HIDDEN) + 2 * HIDDEN + 2 + 2 * NORM
    states = [profile(job, rank).at_peak[Category.OPTIMIZER_STATE] for rank in range(3)]
    held = (EMBEDDED + 2 * HIDDEN + LAYER, LAYER, LAYER + heads)
    assert states == [pytest.approx(12 * one, rel=2e-3) for one in held]


def test_arguments_are_told_in_a_gpts_words():
    args = {
        "--encoder-num-layers": 12, "--encoder-seq-length": 512, "--decoder-num-layers": 6, "--decoder-seq-length": 128,
        "--vocab-extra-ids": 100,
    }  # fmt: skip
    told = as_gpt("t5", args)
    assert (told["--num-layers"], told["--seq-length"], told["--vocab-size"]) == (12, 512, 30624)
    assert other_of("t5", args) == T5(decoder_layers=6, decoder_len=128)
    assert as_gpt("bert", {"--spec": "local"})["--transformer-impl"] == "local"
    assert other_of("gpt", args) is None
