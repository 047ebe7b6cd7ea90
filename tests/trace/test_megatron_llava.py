"""LLaVA's regression run: a vision tower before a language model whose packed tokens ranks share; by hand."""

from dataclasses import replace

import pytest

from benchmarks.accuracy.megatron.jobs import Job, peak_of_blocks, profile
from benchmarks.accuracy.megatron.llava.model import Llava
from benchmarks.accuracy.megatron.llava.packed import rounded_batch, rounded_tokens, workspace_bytes
from benchmarks.accuracy.megatron.llava.vision import Image
from benchmarks.accuracy.megatron.others import LLAVA, as_gpt, other_of
from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.strategy.megatron.states import StateRules
from gpu_plan.planner.trace.events import Category

HIDDEN, WIDE, WORDS, LAYERS = 256, 1024, 1024, 2
IMAGE = Image(height=56, width=56, patch=14, layers=3, keeps_class=False)
TOKENS = 64
MODEL = Architecture(
    layers=LAYERS, hidden=HIDDEN, intermediate=WIDE, heads=4, groups=4, head_dim=64, vocabulary=WORDS,
    gated=False, norm="layer", biases=True, positions=TOKENS, rotary=False,
)  # fmt: skip
JOB = Job(
    model=MODEL,
    layout=Layout(tensor=2, context=2, sequence=True, attention="fused", fused_gradients=False),
    rules=StateRules(data_parallel=2, expert_data_parallel=1, distributed=False),
    micro_batch=1,
    micro_batches=2,
    seq_len=TOKENS,
    capability=(9, 0),
    other=Llava(image=IMAGE, packed=True),
)


def test_a_rank_holds_the_tower_whole_and_shares_its_layers_by_columns():
    norm = 2 * HIDDEN
    layer = (4 * HIDDEN * HIDDEN + 2 * HIDDEN * WIDE + 3 * HIDDEN + WIDE) // 2 + 2 * HIDDEN + 2 * norm
    embedded = 2 * WORDS * HIDDEN // 2 + TOKENS * HIDDEN
    patches = 3 * 14 * 14 * HIDDEN + (16 + 1) * HIDDEN + HIDDEN + norm
    projection = norm + (2 * HIDDEN * WIDE + WIDE) // 2 + HIDDEN
    held = (LAYERS + IMAGE.layers) * layer + norm + embedded + patches + projection
    assert profile(JOB, 0).at_peak[Category.OPTIMIZER_STATE] == pytest.approx(12 * held, rel=2e-3)


def test_cudnn_gives_the_gradient_of_packed_attention_room_for_a_rounded_batch_with_rounded_tokens_each():
    assert [rounded_batch(count) for count in (1, 32, 33, 512, 513)] == [32, 32, 64, 512, 1024]
    assert [rounded_tokens(count) for count in (1, 1024, 1025, 32769)] == [1024, 1024, 2048, 65536]
    assert workspace_bytes(1, 4, 904, 904) == 2**28
    sure = replace(JOB, layout=replace(JOB.layout, deterministic=True))
    more = peak_of_blocks(sure, 0) - peak_of_blocks(JOB, 0)
    # Two of four heads; without it the peak lies elsewhere.
    assert more == pytest.approx(workspace_bytes(1, 2, 32, 32), rel=0.03)


def test_its_arguments_in_a_gpts_words():
    args = {
        "--img-h": 336, "--img-w": 336, "--patch-dim": 14, "--disable-vision-class-token": True, "--num-layers": 12,
        "--dataloader-seq-length": 1230, "--seq-length": 576, "--micro-batch-size": 1, "--context-parallel-size": 2,
        "--tensor-model-parallel-size": 4, "--sequence-parallel": True,
    }  # fmt: skip
    told = as_gpt(LLAVA, args)
    assert told["--seq-length"] == told["--max-position-embeddings"] == 1808
    image = Image(height=336, width=336, patch=14, layers=12, keeps_class=False)
    assert other_of(LLAVA, told) == Llava(image=image, packed=True)
    even = as_gpt(LLAVA, args | {"--dataloader-seq-length": 1232})
    assert other_of(LLAVA, even) == Llava(image=image)
    assert other_of(LLAVA, even | {"--use-packed-sequence": True}) == Llava(image=image, packed=True)
