"""Which kernel `scaled_dot_product_attention` runs, beside what torch itself runs on a CPU."""

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import profile

from gpu_plan.planner.trace.kernels.attention import (
    AttentionBackend,
    AttentionCall,
    choose_cpu_backend,
    choose_cuda_backend,
)

GPUS = ((7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0))


def call(heads: int, *, grouped: bool) -> AttentionCall:
    """Four heads of queries, and fewer of keys and values."""
    query, key = torch.zeros(2, 4, 8, 16), torch.zeros(2, heads, 8, 16)
    half = [tensor.to(torch.bfloat16) for tensor in (query, key, key)]
    return AttentionCall(
        query=half[0], key=half[1], value=half[2], mask=None, dropout=0.0, causal=True, scale=None, grouped=grouped
    )


@pytest.mark.parametrize("capability", GPUS)
def test_heads_that_differ_unsaid_leave_every_fused_kernel_out(capability: tuple[int, int]) -> None:
    """sdp_utils_cpp.h: check_batch_size_and_num_heads_dense; Falcon-7B's one key and value."""
    assert choose_cuda_backend(capability, call(1, grouped=False)) is AttentionBackend.MATH
    if capability >= (8, 0):
        assert choose_cuda_backend(capability, call(2, grouped=True)) is not AttentionBackend.MATH
        assert choose_cuda_backend(capability, call(4, grouped=False)) is not AttentionBackend.MATH


@pytest.mark.parametrize(("heads", "grouped"), [(1, False), (2, True), (4, False)])
def test_torch_runs_the_same_on_a_cpu(heads: int, grouped: bool) -> None:
    asked = call(heads, grouped=grouped)
    with profile() as profiler:
        F.scaled_dot_product_attention(asked.query, asked.key, asked.value, is_causal=True, enable_gqa=grouped)
    math = any(event.name == "aten::_scaled_dot_product_attention_math" for event in profiler.events())
    assert math is (choose_cpu_backend(asked) is AttentionBackend.MATH)
