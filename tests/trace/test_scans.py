"""Stand-ins for fused sequence kernels: the interface of the fallbacks, the memory of the kernels."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers.models.mamba.modeling_mamba import causal_conv1d_fn, mamba_selective_scan
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule
from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRglru

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.catalog_index import load_index
from gpu_plan.planner.trace.inputs.batch import training_batch
from gpu_plan.planner.trace.kernels.scans import delta as scans_delta
from gpu_plan.planner.trace.kernels.scans import mamba as scans_mamba
from gpu_plan.planner.trace.kernels.scans import mamba2 as scans_mamba2
from gpu_plan.planner.trace.kernels.scans import recurrent as scans_recurrent
from gpu_plan.planner.trace.kernels.scans.replace import fused_scans
from tests.support.operators import step_on_cpu, step_on_meta
from tests.support.sample import sample
from tests.support.shrink import shrink

BATCH, TOKENS, WIDTH, STATE = 2, 12, 8, 4


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(*shape, dtype=dtype).requires_grad_()


def saved_bytes(call: Callable[[], Any], leaves: list[torch.Tensor]) -> int:
    """Bytes of the storages that autograd keeps for backward beyond those of `leaves`."""
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(value: torch.Tensor) -> torch.Tensor:
        kept[value.untyped_storage()._cdata] = value.untyped_storage()
        return value

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        call()
    given = {leaf.untyped_storage()._cdata for leaf in leaves}
    return sum(storage.nbytes() for key, storage in kept.items() if key not in given)


def gradients(call: Callable[..., Any], inputs: list[torch.Tensor]) -> list[tuple[Any, ...]]:
    out = call(*inputs)
    out = out[0] if isinstance(out, tuple) else out
    grads = torch.autograd.grad(out.sum(), inputs)
    return [(tuple(t.shape), t.dtype) for t in (out, *grads)]


CONV = [(BATCH, WIDTH, TOKENS), (WIDTH, 4), (WIDTH,)]
SCAN = [
    (BATCH, WIDTH, TOKENS),
    (BATCH, WIDTH, TOKENS),
    (WIDTH, STATE),
    (BATCH, STATE, TOKENS),
    (BATCH, STATE, TOKENS),
    (WIDTH,),
    (BATCH, WIDTH, TOKENS),
    (WIDTH,),
]
DELTA = [(BATCH, TOKENS, 2, 6), (BATCH, TOKENS, 2, 6), (BATCH, TOKENS, 4, 5), (BATCH, TOKENS, 4), (BATCH, TOKENS, 4)]


@pytest.mark.parametrize(
    ("stand_in", "fallback", "shapes"),
    [
        (scans_mamba.causal_conv1d, causal_conv1d_fn, CONV),
        (scans_mamba.selective_scan, mamba_selective_scan, SCAN),
        (scans_delta.chunk_gated_delta_rule, torch_chunk_gated_delta_rule, DELTA),
    ],
)
def test_outputs_and_gradients_are_those_of_the_fallback(
    stand_in: Callable[..., Any], fallback: Callable[..., Any], shapes: list[tuple[int, ...]]
) -> None:
    inputs = [tensor(*shape) for shape in shapes]
    assert gradients(stand_in, inputs) == gradients(fallback, inputs)


def test_the_convolution_keeps_its_input_only() -> None:
    inputs = [tensor(*shape) for shape in CONV]
    assert saved_bytes(lambda: scans_mamba.causal_conv1d(*inputs), inputs) == 0


def test_the_scan_keeps_its_states_and_its_output() -> None:
    inputs = [tensor(*shape) for shape in SCAN]
    states = BATCH * WIDTH * 1 * 2 * STATE * 4
    ungated = BATCH * WIDTH * TOKENS * 4
    assert saved_bytes(lambda: scans_mamba.selective_scan(*inputs), inputs) == states + ungated


def test_mambas_block_recomputes_convolution_and_time_steps() -> None:
    rank, hidden = 3, 5
    xz = tensor(BATCH, TOKENS, 2 * WIDTH).transpose(1, 2)
    weights = [
        tensor(WIDTH, 1, 4),
        tensor(WIDTH),
        tensor(rank + 2 * STATE, WIDTH),
        tensor(WIDTH, rank),
        tensor(hidden, WIDTH),
    ]
    a, d, delta_bias = tensor(WIDTH, STATE), tensor(WIDTH), tensor(WIDTH)

    def call() -> torch.Tensor:
        return scans_mamba.mamba_inner(xz, *weights, None, a, None, None, d, delta_bias=delta_bias)

    rows = BATCH * TOKENS
    copied_input = rows * 2 * WIDTH
    projected = rows * (rank + 2 * STATE)
    b_and_c = 2 * rows * STATE
    states = BATCH * WIDTH * 2 * STATE
    ungated = rows * WIDTH
    expected = 4 * (copied_input + projected + b_and_c + states + ungated)
    assert saved_bytes(call, [xz, *weights, a, d, delta_bias]) == expected
    out = call()
    assert out.shape == (BATCH, TOKENS, hidden)
    inputs = [xz, *weights, a, d, delta_bias]
    assert [g.shape for g in torch.autograd.grad(out.sum(), inputs)] == [t.shape for t in inputs]


def test_mamba2s_block_keeps_its_input_the_scan_and_a_norm_per_group() -> None:
    heads, head_dim, groups, hidden = 4, 6, 2, 7
    inner, channels = heads * head_dim, heads * head_dim + 2 * groups * STATE
    zxbcdt = tensor(BATCH, TOKENS, inner + channels + heads)
    weights = [tensor(channels, 4), tensor(channels), tensor(heads), tensor(heads), tensor(heads)]
    norm, out_proj = tensor(inner), tensor(hidden, inner)

    def call() -> torch.Tensor:
        return scans_mamba2.split_conv1d_scan_combined(
            zxbcdt, *weights, 256, rmsnorm_weight=norm, outproj_weight=out_proj, headdim=head_dim, ngroups=groups
        )

    inputs = [zxbcdt, *weights, norm, out_proj]
    rows = BATCH * TOKENS
    assert saved_bytes(call, inputs) == 4 * (rows * inner + rows * groups)
    out = call()
    assert out.shape == (BATCH, TOKENS, hidden)
    assert [g.shape for g in torch.autograd.grad(out.sum(), inputs)] == [t.shape for t in inputs]


def test_mamba2s_scan_without_a_norm_keeps_what_it_gated_beside_what_it_put_out() -> None:
    heads, head_dim, groups = 4, 6, 2
    inner, channels = heads * head_dim, heads * head_dim + 2 * groups * STATE
    zxbcdt = tensor(BATCH, TOKENS, inner + channels + heads)
    weights = [tensor(channels, 4), tensor(channels), tensor(heads), tensor(heads), tensor(heads)]
    kept: list[torch.Tensor] = []

    def call() -> torch.Tensor:
        kept.append(scans_mamba2.split_conv1d_scan_combined(zxbcdt, *weights, 256, headdim=head_dim, ngroups=groups))
        return kept[-1]

    inputs = [zxbcdt, *weights]
    assert saved_bytes(call, inputs) == 4 * BATCH * TOKENS * inner
    saved = kept[-1].grad_fn.saved_tensors[3]  # type: ignore[union-attr]
    assert saved.untyped_storage()._cdata != kept[-1].untyped_storage()._cdata
    assert [g.shape for g in torch.autograd.grad(kept[-1].sum(), inputs)] == [t.shape for t in inputs]


def test_the_delta_rule_keeps_normed_keys_and_the_solved_chunks() -> None:
    query, key, value, decay, beta = (tensor(*shape, dtype=torch.bfloat16) for shape in DELTA)

    def call() -> Any:
        return scans_delta.chunk_gated_delta_rule(query, key, value, decay, beta, use_qk_l2norm_in_kernel=True)

    rows = BATCH * TOKENS
    normed = 2 * rows * 2 * 6 * 2 + 2 * rows * 2 * 4
    solved, cumulative = rows * 4 * 64 * 2, rows * 4 * 4
    assert saved_bytes(call, [query, key, value, decay, beta]) == normed + solved + cumulative


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_recurrence_keeps_what_the_loop_keeps(dtype: torch.dtype) -> None:
    hidden = tensor(BATCH, TOKENS, WIDTH, dtype=dtype)
    gate = tensor(BATCH, TOKENS, WIDTH, dtype=dtype)
    reset = torch.zeros(BATCH, TOKENS, 1, dtype=torch.bool)
    leaves = [hidden, gate]

    def kept(scan: Callable[..., Any]) -> int:
        return saved_bytes(lambda: scan(None, hidden, gate, reset, None), leaves)

    loop: Any = RecurrentGemmaRglru._rnn_scan
    assert kept(scans_recurrent.rnn_scan) == kept(loop)
    assert gradients(lambda h, g: scans_recurrent.rnn_scan(None, h, g, reset), leaves) == gradients(
        lambda h, g: loop(None, h, g, reset, None), leaves
    )


def build(model_id: str) -> nn.Module:
    return build_model(shrink(json.loads(load_index()[model_id].path.read_text())))


@pytest.mark.parametrize(
    "model_id",
    sample(
        [
            "state-spaces/mamba-2.8b-hf",
            "mistralai/Mamba-Codestral-7B-v0.1",
            "ai21labs/Jamba-v0.1",
            "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
            "Qwen/Qwen3-Next-80B-A3B-Instruct",
            "google/recurrentgemma-2b-it",
        ],
        kept=["ai21labs/Jamba-v0.1", "Qwen/Qwen3-Next-80B-A3B-Instruct", "google/recurrentgemma-2b-it"],
    ),
)
def test_longer_sequences_add_no_operators_and_every_parameter_gets_its_gradient(model_id: str) -> None:
    counts = []
    for tokens in (256, 1024):
        model = build(model_id)
        with fused_scans(model) as assumptions:
            counts.append(len(step_on_meta(model, training_batch(model, batch=2, seq_len=tokens))))
        assert [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None] == []
        assert all(p.grad is None or p.grad.shape == p.shape for p in model.parameters())
        assert assumptions
    assert counts[0] == counts[1]


def test_looped_experts_run_as_on_the_cpu_with_even_routing() -> None:
    config = {
        "model_type": "dbrx",
        "d_model": 32,
        "n_heads": 4,
        "n_layers": 1,
        "vocab_size": 64,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 16, "moe_num_experts": 4, "moe_top_k": 2},
    }
    batch = training_batch(build_model(config), batch=2, seq_len=10)
    runs = []
    for step in (step_on_meta, step_on_cpu):
        model = build_model(config, attention="eager")
        with fused_scans(model) as assumptions:
            runs.append(step(model, batch))
        assert assumptions == ["tokens are routed evenly over the experts"]
    assert runs[0] == runs[1]
    assert ("aten.index.Tensor", ((10, 32),)) in runs[0]  # 20 tokens, two experts each, over four experts


def test_images_of_a_large_batch_need_no_values_of_full_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_plan.planner.trace.inputs.known.MAX_ELEMENTS", 100_000)
    model = build("google/gemma-4-26B-A4B")
    with fused_scans(model) as assumptions:
        step_on_meta(model, training_batch(model, batch=2, seq_len=300))
    assert assumptions == ["images have no padding patches"]


def test_the_originals_come_back() -> None:
    import transformers.models.mamba.modeling_mamba as home

    before = home.mamba_inner_fn
    with fused_scans(build("state-spaces/mamba-2.8b-hf")):
        assert home.mamba_inner_fn is scans_mamba.mamba_inner
    assert home.mamba_inner_fn is before


def test_other_models_are_left_alone() -> None:
    with fused_scans(build("meta-llama/Llama-3.1-8B")) as assumptions:
        assert assumptions == []
