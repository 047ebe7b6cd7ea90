"""Megatron-core's step on meta, replayed: against sums by hand, and ranks against one another."""

from dataclasses import replace

import pytest

from benchmarks.accuracy.megatron.jobs import Job, profile, stream
from gpu_plan.planner.megatron.architecture import Architecture, Experts, LatentAttention
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.strategy.megatron.states import StateRules
from gpu_plan.planner.trace.events import Category
from tests.support.ranks.megatron.case import MegatronCase
from tests.support.ranks.megatron.replay import replay, replayed

MODEL = Architecture(layers=4, hidden=512, intermediate=1024, heads=8, groups=4, head_dim=64, vocabulary=4096)
JOB = Job(
    model=MODEL,
    layout=Layout(),
    rules=StateRules(data_parallel=1, expert_data_parallel=1),
    micro_batch=2,
    micro_batches=4,
    seq_len=256,
    capability=(9, 0),
)


def _parameters() -> int:
    layer = 512 * (512 + 2 * 256) + 512 * 512 + 3 * 512 * 1024 + 2 * 512
    return 4 * layer + 2 * 4096 * 512 + 512


def test_states_are_eighteen_bytes_a_parameter():
    at_peak = profile(JOB, 0).at_peak
    held = sum(at_peak[kind] for kind in (Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER_STATE))
    assert held == pytest.approx(18 * _parameters(), rel=1e-4)
    aware = replace(JOB, rules=replace(JOB.rules, data_parallel=4, main_bytes=2, moment_bytes=(2, 2)))
    at_peak = profile(aware, 0).at_peak
    assert at_peak[Category.OPTIMIZER_STATE] == pytest.approx(6 * _parameters() / 4, rel=1e-3)


def test_what_a_layer_keeps():
    """In 16 bits, of tokens x hidden: the normalised input twice, the input of each residual, queries, keys and values
    in copies of their own, attention's output, both halves of the gate and their product; statistics beside them."""
    tokens, hidden = 2 * 256, 512
    shallow = profile(replace(JOB, model=replace(MODEL, layers=4)), 0).at_peak[Category.ACTIVATIONS]
    deep = profile(replace(JOB, model=replace(MODEL, layers=8)), 0).at_peak[Category.ACTIVATIONS]
    kept = 2 * tokens * (4 * hidden + 2 * hidden + hidden + 3 * 1024)
    assert (deep - shallow) / 4 == pytest.approx(kept, rel=0.12)


def test_ranks_hold_less_the_more_they_share():
    alone = profile(JOB, 0).peak_allocated_bytes
    together = profile(replace(JOB, layout=Layout(tensor=2, sequence=True)), 0).peak_allocated_bytes
    tokens = profile(replace(JOB, layout=Layout(context=2)), 0).peak_allocated_bytes
    assert alone > tokens > together


def test_recomputed_layers_keep_their_input_alone():
    plain = profile(JOB, 0).at_peak[Category.ACTIVATIONS]
    chunks = replace(JOB, layout=Layout(recompute="full"))
    assert profile(chunks, 0).at_peak[Category.ACTIVATIONS] < plain / 2
    some = replace(JOB, layout=Layout(recompute="full", recompute_method="block", recompute_layers=2))
    between = profile(some, 0).at_peak[Category.ACTIVATIONS]
    assert profile(chunks, 0).at_peak[Category.ACTIVATIONS] < between < plain


def test_earlier_stages_hold_more_micro_batches():
    piped = replace(JOB, layout=Layout(pipeline=4), model=replace(MODEL, layers=8), micro_batches=8)
    kept = [profile(piped, rank).at_peak[Category.ACTIVATIONS] for rank in (1, 2)]
    assert kept[0] == pytest.approx(kept[1] * 3 / 2, rel=0.1)
    interleaved = replace(piped, layout=Layout(pipeline=4, virtual=2))
    assert profile(interleaved, 1).at_peak[Category.ACTIVATIONS] > kept[0]


@pytest.mark.parametrize("rank", range(4))
def test_outputs_that_are_not_emptied_stand_as_long_as_their_graphs(rank):
    """One for each micro batch that is under way; the last stage puts out a loss."""
    piped = replace(JOB, layout=Layout(pipeline=4), model=replace(MODEL, layers=8), micro_batches=8)
    kept = replace(piped, layout=replace(piped.layout, deallocates=False))
    own = profile(kept, rank).peak_allocated_bytes - profile(piped, rank).peak_allocated_bytes
    assert own == (4 - rank if rank < 3 else 0) * 2 * 2 * 256 * 512


def test_a_gate_of_several_kernels_keeps_both_factors():
    """mlp.py: glu: the activation, and the other half with 0 added, beside the product of both."""
    one = replace(JOB, micro_batches=1)
    several = replace(one, layout=Layout(fused_activation=False))
    more = profile(several, 0).peak_allocated_bytes - profile(one, 0).peak_allocated_bytes
    assert more == 4 * 2 * (2 * 2 * 256 * 1024)


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize(("loss", "each"), [("unfused", 6), ("native", 10), ("verl", 8), ("verl-entropy", 12)])
def test_bytes_of_a_logit_in_a_loss(loss, each, tensor):
    """fp32 beside the logits' own 16 bits, twice in the fused one's backward; verl's gradient before and after the
    temperature; with an entropy logits, probabilities, and the copy that log-probabilities are taken in."""
    layout = Layout(cross_entropy=loss, tensor=tensor, sequence=tensor > 1)

    def beside(words: int) -> int:
        job = replace(JOB, model=replace(MODEL, vocabulary=words, layers=2), micro_batches=1, layout=layout)
        at_peak = profile(job, 0).at_peak
        states = (Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER_STATE, Category.BUFFERS)
        return sum(size for kind, size in at_peak.items() if kind not in states)

    assert (beside(131_072) - beside(65_536)) * tensor == each * 65_536 * 2 * 256


@pytest.mark.parametrize("tensor", [1, 2])
def test_a_head_in_one_with_verls_loss_keeps_no_logits(tensor):
    """In backward gradients of 9,504 words stand, and of the last slice a copy, whatever the vocabulary. Peaks of the
    functions themselves equal those of verl's own on a CPU, its kernels left out, in four shapes."""
    layout = Layout(cross_entropy="verl-fused", tensor=tensor, sequence=tensor > 1)

    def beside(words: int) -> int:
        job = replace(JOB, model=replace(MODEL, vocabulary=words, layers=2), micro_batches=1, layout=layout)
        kinds = (Category.ACTIVATIONS, Category.TEMPORARY, Category.COMMUNICATION)
        return sum(profile(job, 0).at_peak[kind] for kind in kinds)

    last = [(words // tensor - 1) % 9504 + 1 for words in (131_072, 65_536)]
    assert beside(131_072) - beside(65_536) == (last[0] - last[1]) * 2 * (2 * 256)


def test_a_head_in_one_with_its_loss_multiplies_once_more():
    """Forward, both gradients, and the logits again in backward: a third more of the head's products."""

    def flops(loss: str) -> float:
        job = replace(JOB, model=replace(MODEL, layers=1), micro_batches=1, layout=Layout(cross_entropy=loss))
        trace = stream(job, 0)[1]
        return float(trace.op_flops_fixed.sum() + 2 * trace.op_flops_per_sample.sum())

    assert flops("verl-fused") - flops("verl") == 2 * (2 * 256) * MODEL.padded_vocabulary(1) * MODEL.hidden


EXPERTS = Experts(count=8, chosen=2, width=256)
WITH_EXPERTS = replace(JOB, model=replace(MODEL, experts=EXPERTS))


def test_experts_of_a_rank_and_their_states():
    alone = profile(WITH_EXPERTS, 0).at_peak
    layer = 512 * (512 + 2 * 256) + 512 * 512 + 2 * 512 + 8 * 512
    dense, experts = 4 * layer + 2 * 4096 * 512 + 512, 4 * 8 * 3 * 512 * 256
    assert alone[Category.GRADIENTS] == pytest.approx(4 * (dense + experts), rel=1e-3)
    shared = replace(
        WITH_EXPERTS,
        layout=Layout(expert=4),
        rules=StateRules(data_parallel=8, expert_data_parallel=2),
    )
    at_peak = profile(shared, 0).at_peak
    assert at_peak[Category.GRADIENTS] == pytest.approx(4 * (dense + experts / 4), rel=1e-3)
    # Dense states over all eight ranks, those of experts over the two that hold the same.
    assert at_peak[Category.OPTIMIZER_STATE] == pytest.approx(12 * (dense / 8 + experts / 8), rel=5e-3)


def test_experts_take_as_many_tokens_as_they_are_sent():
    plain = profile(WITH_EXPERTS, 0).at_peak[Category.ACTIVATIONS]
    half = profile(replace(WITH_EXPERTS, layout=Layout(capacity=0.5)), 0).at_peak[Category.ACTIVATIONS]
    tokens = 2 * 256
    # Of every token that an expert takes: its input, both halves of the gate and their product, in 16 bits.
    rows = 4 * tokens * 2 * (512 + 3 * 256) * 2
    assert plain - half == pytest.approx(rows / 2, rel=0.15)


@pytest.mark.parametrize("layout", [Layout(expert=4), Layout(expert=2, expert_tensor=2), Layout(grouped=False)])
@pytest.mark.parametrize("dispatcher", ["alltoall", "allgather"])
def test_every_way_to_experts_holds_about_the_same(layout, dispatcher):
    """With 8 experts evenly chosen a rank computes as many rows as it sends, wherever they lie."""
    plain = profile(WITH_EXPERTS, 0).at_peak[Category.ACTIVATIONS]
    other = replace(WITH_EXPERTS, layout=replace(layout, dispatcher=dispatcher))
    assert profile(other, 0).at_peak[Category.ACTIVATIONS] == pytest.approx(plain, rel=0.15)


@pytest.mark.parametrize("dispatcher", ["alltoall", "allgather"])
def test_a_rank_whose_experts_are_chosen_more_often_computes_more_rows(dispatcher):
    job = replace(WITH_EXPERTS, layout=Layout(expert=4, dispatcher=dispatcher))
    even, more, fewer = (
        profile(replace(job, layout=replace(job.layout, load=load)), 0).at_peak[Category.ACTIVATIONS]
        for load in (1.0, 1.5, 0.75)
    )
    # Of a row its input, both halves of the gate, their product and its weight at least.
    rows = 4 * 2 * 256 * 2
    assert more - even >= rows / 2 * 2 * (512 + 3 * 256)
    assert (more - even) / (even - fewer) == pytest.approx(2, rel=0.02)


def test_muon_keeps_one_moment_of_a_matrix_and_adam_both_of_the_rest():
    whole = replace(JOB, rules=replace(JOB.rules, data_parallel=4, distributed=False, muon="whole"))
    words = 2 * 4096 * 512
    norms = 9 * 512
    matrices = _parameters() - words - norms
    found = profile(whole, 0).at_peak
    assert found[Category.OPTIMIZER_STATE] == 8 * matrices + 12 * (words + norms)
    # 27 parameters, smallest first, dealt out there and back: the fourth and fifth of every eight come to rank 3, which
    # are two norms, two projections of attention and two matrices of 512 by 1,024.
    shares = [
        profile(replace(whole, rules=replace(whole.rules, muon="layer_wise", data_rank=rank)), 0).at_peak
        for rank in range(4)
    ]
    states = [share[Category.OPTIMIZER_STATE] for share in shares]
    assert sum(states) == found[Category.OPTIMIZER_STATE]
    assert states[3] == 12 * 2 * 512 + 8 * (2 * 512 * 512 + 2 * 512 * 1024)
    assert {share[Category.GRADIENTS] for share in shares} == {found[Category.GRADIENTS]}


def test_latent_attention_keeps_what_is_compressed():
    latent = LatentAttention(query_rank=192, key_value_rank=128, head_dim=64, rotary_dim=32, value_dim=64)
    job = replace(JOB, model=replace(MODEL, groups=8, head_dim=96, latent=latent))
    found = profile(job, 0).at_peak
    layer = 512 * 192 + 192 * 8 * 96 + 512 * (128 + 32) + 128 * 8 * 128 + 8 * 64 * 512 + 2 * 512 + 192 + 128
    parameters = 4 * (layer + 3 * 512 * 1024) + 2 * 4096 * 512 + 512
    assert found[Category.GRADIENTS] == pytest.approx(4 * parameters, rel=1e-3)
    shared = replace(job, layout=Layout(tensor=2, sequence=True))
    assert profile(shared, 0).at_peak[Category.ACTIVATIONS] < found[Category.ACTIVATIONS]


def test_exchanged_heads_keep_the_output_before_and_after():
    """Of every layer one output more than a ring keeps, of a rank's tokens and heads."""
    deep = replace(JOB, model=replace(MODEL, layers=8), seq_len=512)

    def grown(layout: Layout) -> float:
        more = profile(replace(deep, layout=layout), 0).at_peak[Category.ACTIVATIONS]
        return more - profile(replace(deep, model=MODEL, layout=layout), 0).at_peak[Category.ACTIVATIONS]

    ring, exchanged = (grown(Layout(context=2, attention="flash", context_comm=how)) for how in ("p2p", "a2a"))
    assert exchanged - ring == pytest.approx(4 * 2 * 256 * 512 * 2, rel=0.01)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("twice", [False, True])
def test_weights_in_float8_stand_beside_or_in_place_of_others(stored, twice):
    layout = Layout(float8="tensorwise", float8_stored=stored, float8_twice=twice)
    job = replace(JOB, layout=layout, rules=replace(JOB.rules, float8_stored=stored))
    plain, found = profile(JOB, 0).at_peak, profile(job, 0).at_peak
    linear = 4 * (512 * (512 + 2 * 256) + 512 * 512 + 3 * 512 * 1024)
    assert plain[Category.PARAMETERS] - found[Category.PARAMETERS] == pytest.approx(linear if stored else 0, abs=4096)
    beside = (not stored) + twice
    assert found[Category.BUFFERS] - plain[Category.BUFFERS] == pytest.approx(beside * linear, abs=8192)
    assert found[Category.GRADIENTS] == pytest.approx(plain[Category.GRADIENTS], rel=1e-3)
    assert found[Category.ACTIVATIONS] < plain[Category.ACTIVATIONS]


@pytest.mark.parametrize("layout", [Layout(tensor=2, sequence=True), Layout(expert=4), Layout(grouped=False)])
def test_experts_and_shared_layers_compute_in_float8(layout):
    plain = profile(replace(WITH_EXPERTS, layout=layout), 0).at_peak[Category.ACTIVATIONS]
    narrow = replace(layout, float8="delayed", float8_twice=True)
    assert profile(replace(WITH_EXPERTS, layout=narrow), 0).at_peak[Category.ACTIVATIONS] < plain


@pytest.mark.parametrize("layout", [Layout(pipeline=2), Layout(pipeline=2, tensor=2, sequence=True)])
def test_layers_that_predict_further_tokens_stand_on_the_last_stage(layout):
    one = replace(JOB, layout=layout)
    more = replace(one, model=replace(MODEL, next_tokens=1))
    assert profile(more, 0) == profile(one, 0)
    plain, found = profile(one, 1).at_peak, profile(more, 1).at_peak
    layer = (512 * (512 + 2 * 256) + 512 * 512 + 3 * 512 * 1024 + 2 * 512 * 512 + 4096 * 512) // layout.tensor + 5 * 512
    assert found[Category.GRADIENTS] - plain[Category.GRADIENTS] == pytest.approx(4 * layer, rel=2e-2)
    assert found[Category.ACTIVATIONS] > plain[Category.ACTIVATIONS]


def test_what_is_run_again_is_kept_by_nobody_in_float8_either():
    experts = replace(EXPERTS, shared_width=512)
    latent = LatentAttention(query_rank=192, key_value_rank=128, head_dim=64, rotary_dim=32, value_dim=64)
    job = replace(JOB, model=replace(MODEL, groups=8, head_dim=96, latent=latent, experts=experts))

    def kept(*parts: str) -> int:
        layout = Layout(float8="tensorwise", float8_twice=True)
        if parts:
            layout = replace(layout, recompute="selective", recompute_modules=parts)
        return profile(replace(job, layout=layout), 0).at_peak[Category.ACTIVATIONS]

    assert kept() > kept("layernorm") > kept("layernorm", "moe_act")
    assert kept() > kept("mla_up_proj")


@pytest.mark.parametrize(
    ("case", "rank", "real"),
    [
        (MegatronCase(pipeline=2, virtual=2), 0, 762_880),
        (MegatronCase(pipeline=2, virtual=2), 1, 560_704),
        (MegatronCase(tensor=2, pipeline=2), 0, 374_912),
        (MegatronCase(pipeline=2, deallocates=False), 0, 620_544),
        (MegatronCase(pipeline=2, virtual=2, deallocates=False), 0, 795_648),
        (MegatronCase(pipeline=4, micro_batches=8, deallocates=False), 2, 362_496),
        (MegatronCase(micro_batch=1, micro_batches=2, verl=True), 0, 348_672),
        (MegatronCase(tensor=2, micro_batch=1, verl=True), 0, 213_536),
        (MegatronCase(micro_batch=1, micro_batches=2, verl=True, forward_only=True), 0, 58_368),
        (MegatronCase(tensor=2, micro_batch=1, verl=True, forward_only=True), 0, 36_096),
        (MegatronCase(micro_batch=1, micro_batches=2, values=True), 0, 315_904),
        (MegatronCase(pipeline=2, micro_batch=1, micro_batches=3, values=True), 1, 186_368),
        (MegatronCase(tensor=2, micro_batch=1, values=True), 0, 195_104),
        (MegatronCase(pipeline=2, micro_batch=1, micro_batches=3, values=True, forward_only=True), 1, 57_984),
        (MegatronCase(pipeline=2, micro_batch=1, micro_batches=3, verl=True, forward_only=True), 0, 61_952),
        (MegatronCase(pipeline=2, micro_batch=1, micro_batches=3, verl=True, forward_only=True), 1, 62_080),
    ],
    ids=lambda value: value.label() if isinstance(value, MegatronCase) else str(value),
)
def test_peaks_are_those_of_megatron_core_itself(case, rank, real):
    """As megatron-core 0.16.1 ran them on gloo (benchmarks/results/megatron_ranks.md): what the loop over the first
    forwards received last stands until the schedule returns, and ids go where a masked copy is kept."""
    stream, _ = replay(case, rank)
    assert [replayed(stream, case, step)["peak"] for step in range(2)] == [real, real]


@pytest.mark.parametrize(
    ("case", "real", "counts"),
    [
        (MegatronCase(expert=2, experts=4), 846_016, 128),
        (MegatronCase(again=("moe",), experts=4), 500_608, 128 + 512),
    ],
    ids=lambda value: value.label() if isinstance(value, MegatronCase) else str(value),
)
def test_dispatchers_remember_what_tokens_were_sent_by(case, real, counts):
    """All but how many tokens came to each expert, and 512 bytes where layers are run again."""
    stream, _ = replay(case, 0)
    assert replayed(stream, case, 0)["peak"] == real - counts


def test_deterministic_sums_keep_the_output_of_experts():
    """Megatron-core adds it up by `index_add_` then, of whose source torch keeps the whole: tokens x hidden in 16 bits
    for each layer, of every expert that a token is sent to."""
    plain = replace(WITH_EXPERTS, layout=Layout(dispatcher="allgather", permute_fusion=False))
    kept = replace(plain, layout=replace(plain.layout, deterministic=True))
    found = [profile(job, 0).at_peak[Category.ACTIVATIONS] for job in (plain, kept)]
    assert found[1] - found[0] == 4 * 2 * (2 * 256) * 512 * 2
