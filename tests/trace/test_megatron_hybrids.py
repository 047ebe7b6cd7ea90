"""Megatron-core's hybrids, and exchanges beside another micro batch's layers: against sums by hand."""

from dataclasses import replace

import pytest

from benchmarks.accuracy.megatron import sharded
from benchmarks.accuracy.megatron.hybrids.mixer import Mamba2
from benchmarks.accuracy.megatron.hybrids.model import Hybrid
from benchmarks.accuracy.megatron.jobs import Job, peak_of_blocks, profile
from benchmarks.accuracy.megatron.others import as_gpt, hybrid_not_replayed, other_of, stages_of
from benchmarks.accuracy.megatron.overlapped import Overlapped
from gpu_plan.planner.megatron.architecture import Architecture, Experts
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.strategy.megatron.states import StateRules
from gpu_plan.planner.trace.events import Category

HIDDEN, WIDE, WORDS, TOKENS, SAMPLES = 256, 1024, 1024, 128, 2
SIZES = Mamba2(state=16, head_dim=32, groups=2, chunk=64)
INNER, HEADS, CONVOLVED = 512, 16, 512 + 2 * 2 * 16
MODEL = Architecture(
    layers=4, hidden=HIDDEN, intermediate=WIDE, heads=4, groups=4, head_dim=64, vocabulary=WORDS,
    gated=False, norm="layer", biases=True, tied=True, positions=TOKENS, rotary=False,
)  # fmt: skip
JOB = Job(
    model=MODEL,
    layout=Layout(attention="unfused", hidden_dropout=0.1, attention_dropout=0.1, fused_gradients=False),
    rules=StateRules(data_parallel=1, expert_data_parallel=1, distributed=False),
    micro_batch=SAMPLES,
    micro_batches=2,
    seq_len=TOKENS,
    capability=(9, 0),
    other=Hybrid(pattern="M-*M", mamba=SIZES),
)
NORM = 2 * HIDDEN
MIXER = NORM + HIDDEN * (INNER + CONVOLVED + HEADS) + CONVOLVED * 5 + 3 * HEADS + INNER + INNER * HIDDEN


def _states(job, rank=0):
    return profile(job, rank).at_peak[Category.OPTIMIZER_STATE]


def test_a_stage_has_the_layers_of_its_part_of_the_pattern():
    attends = 4 * HIDDEN * HIDDEN + 4 * HIDDEN + NORM
    mlp = 2 * HIDDEN * WIDE + WIDE + HIDDEN + NORM
    embedded = (WORDS + TOKENS) * HIDDEN
    assert _states(JOB) == pytest.approx(12 * (embedded + 2 * MIXER + attends + mlp + NORM), rel=2e-3)
    halves = replace(JOB, layout=replace(JOB.layout, pipeline=2))
    held = (embedded + MIXER + mlp, attends + MIXER + NORM + WORDS * HIDDEN)
    assert [_states(halves, rank) for rank in range(2)] == [pytest.approx(12 * one, rel=2e-3) for one in held]


def test_a_mixer_keeps_its_projection_once_and_its_scan_before_and_after_the_gate_and_the_norm():
    deep = replace(JOB, model=replace(MODEL, layers=8), other=Hybrid(pattern="M-*MMMMM", mamba=SIZES))
    kept = (profile(deep, 0).at_peak[Category.ACTIVATIONS] - profile(JOB, 0).at_peak[Category.ACTIVATIONS]) / 4
    rows = SAMPLES * TOKENS
    # In 16 bits: residual, what was normed, the projection, the scan before its gate, what it put out, that normed;
    # a byte of what was dropped, statistics of both norms.
    least = 2 * rows * (2 * HIDDEN + INNER + CONVOLVED + HEADS + 3 * INNER) + rows * HIDDEN + 4 * rows * (2 + 2)
    assert kept == pytest.approx(least, rel=0.02)


def test_tensor_parallel_ranks_share_heads_and_groups():
    shared = replace(JOB, layout=replace(JOB.layout, tensor=2))
    assert 1.7 < _states(JOB) / _states(shared) < 2


def test_a_pattern_is_told_in_a_gpts_words():
    args = {"--hybrid-layer-pattern": "M-|M*|M-|MM", "--mamba-state-dim": 64}
    assert as_gpt("hybrid", args)["--num-layers"] == 8
    assert stages_of(args) == 4
    assert stages_of({"--hybrid-layer-pattern": "MM"}) is None
    assert other_of("hybrid", args) == Hybrid(pattern="M-M*M-MM", mamba=Mamba2(state=64))
    assert hybrid_not_replayed(args) == ""
    assert hybrid_not_replayed({"--hybrid-layer-pattern": "MG*D"}) == "--hybrid-layer-pattern with D G"


def test_layers_that_predict_further_tokens_have_patterns_of_their_own():
    args = {"--hybrid-layer-pattern": "ME|*E/*E/*E", "--mtp-use-repeated-layer": True}
    assert as_gpt("nemotron", args)["--num-layers"] == 4
    assert stages_of(args) == 2
    assert other_of("nemotron", args) == Hybrid(pattern="ME*E", further=("*E", "*E"), repeated=True)
    assert hybrid_not_replayed(args) == ""


EXPERTS = Experts(count=8, chosen=2, width=512, shared_width=128, score="sigmoid", biased=True)
SPARSE = replace(
    JOB, model=replace(MODEL, experts=EXPERTS, biases=False, norm="rms", layers=2, next_tokens=2), micro_batch=64
)


def test_a_layer_that_predicts_twice_is_held_once_and_keeps_twice():
    once, twice = (
        replace(SPARSE, other=Hybrid(pattern="M*", mamba=SIZES, further=("*E",) * count, repeated=True))
        for count in (1, 2)
    )
    apart = replace(SPARSE, other=Hybrid(pattern="M*", mamba=SIZES, further=("*E", "*E")))
    attends = 4 * HIDDEN * HIDDEN + HIDDEN
    experts = 2 * HIDDEN * (8 * 512 + 128) + 8 * HIDDEN + HIDDEN
    projection = 2 * HIDDEN * HIDDEN + 3 * HIDDEN
    assert _states(twice) == _states(once)
    assert _states(apart) - _states(once) == pytest.approx(12 * (attends + experts + projection), rel=1e-3)
    kept = [profile(job, 0).at_peak[Category.ACTIVATIONS] for job in (once, twice, apart)]
    # The logits of one more token in fp32, and what the layer keeps.
    assert kept[1] == kept[2] > kept[0] + 4 * 64 * TOKENS * WORDS


def test_experts_without_a_gate_keep_what_came_and_what_was_widened_and_squared():
    deep = Hybrid(pattern="M*E", mamba=SIZES)
    plain, sparse = (
        profile(replace(SPARSE, model=replace(SPARSE.model, layers=len(other.pattern), next_tokens=0), other=other), 0)
        for other in (Hybrid(pattern="M*", mamba=SIZES), deep)
    )
    rows = 64 * TOKENS
    routed = 2 * 2 * rows * (HIDDEN + 512 + 512)
    shared = 2 * rows * (HIDDEN + HIDDEN + 128 + 128)
    more = sparse.at_peak[Category.ACTIVATIONS] - plain.at_peak[Category.ACTIVATIONS]
    assert more == pytest.approx(routed + shared, rel=0.15)


def test_exchanges_beside_another_micro_batch_hold_what_that_was_given_at_the_logits():
    model = replace(MODEL, vocabulary=32768, experts=Experts(count=4, chosen=2, width=512))
    layout = replace(JOB.layout, tensor=2, sequence=True, expert=2, attention_mask=True)
    alone = replace(JOB, model=model, layout=layout, other=None)
    assert other_of("moe", {"--overlap-moe-expert-parallel-comm": True}) == Overlapped()
    more = peak_of_blocks(replace(alone, other=Overlapped()), 0) - peak_of_blocks(alone, 0)
    hidden = SAMPLES * TOKENS * HIDDEN // 2
    given = SAMPLES * TOKENS * (8 + 8 + 8 + 4) + SAMPLES * TOKENS * TOKENS
    assert more == pytest.approx(given + hidden * (2 + 2 + 1), rel=0.05)


def test_what_megatron_fsdp_holds_at_its_first_logits_and_at_later_ones():
    """All weights whole but for a workspace that is not there yet; or those of no layer, and the workspace."""
    model = replace(MODEL, vocabulary=32768)
    job = replace(JOB, model=model, other=None, rules=StateRules(data_parallel=4, expert_data_parallel=1))
    layers = 4 * (4 * HIDDEN * HIDDEN + 4 * HIDDEN + 2 * HIDDEN * WIDE + WIDE + HIDDEN + 2 * NORM)
    others = (32768 + TOKENS) * HIDDEN + NORM
    for workspace, whole in ((1024, layers + others), (1 << 30, others)):
        told = replace(job, workspace_bytes=workspace)
        held = profile(told, 0)
        kinds = (Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER_STATE)
        rest = held.peak_allocated_bytes - sum(held.at_peak[kind] for kind in kinds)
        more = sharded.peak_of(told, held.peak_allocated_bytes) - rest
        gone = workspace if whole != others else 0
        assert more == pytest.approx(18 * (layers + others) // 4 + 2 * whole - gone, rel=1e-3)
