"""FlexAttention on meta: what the fused kernel keeps, returns and computes."""

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_plan.planner.capture.answers.flex import Flex
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.trace.recording.operators.work import operator_flops

pytestmark = pytest.mark.usefixtures("uncompiled")
BATCH, HEADS, KEY_HEADS, TOKENS, SIZE = 2, 8, 2, 128, 64


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under capture."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def operands() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As a model has them: heads cut out of [batch, tokens, heads, size]."""
    counts = (HEADS, KEY_HEADS, KEY_HEADS)
    whole = (torch.empty(BATCH, TOKENS, count, SIZE, device="meta", dtype=torch.bfloat16) for count in counts)
    query, key, value = (one.transpose(1, 2).requires_grad_() for one in whole)
    return query, key, value


def test_the_output_lies_as_the_query_and_backward_keeps_the_log_sum_exp() -> None:
    flex, (query, key, value) = Flex(lambda: True), operands()
    kept: list[torch.Tensor] = []
    with (
        flex.answered(),
        torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one) or one, lambda one: one),
    ):
        out = flex_attention(query, key, value, enable_gqa=True)
        out.backward(torch.empty_like(out))
    assert out.shape == query.shape
    assert out.stride() == query.stride()
    assert [tuple(one.shape) for one in kept[3:]] == [tuple(query.shape), (BATCH, HEADS, TOKENS)]
    assert kept[4].dtype == torch.float32
    assert [one.grad.stride() for one in (query, key, value)] == [one.stride() for one in (query, key, value)]
    assert "fused kernel" in flex.lines()[0]


def test_its_work_is_that_of_all_blocks() -> None:
    found: dict[str, int] = {}

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **(kwargs or {}))
            found[func._schema.name] = operator_flops(func, args, out)
            return out

    query, key, value = operands()
    with Flex(lambda: True).answered(), Seen():
        out = flex_attention(query, key, value, enable_gqa=True)
        out.backward(torch.empty_like(out))
    products = 2 * BATCH * HEADS * TOKENS * TOKENS * SIZE
    assert found["gpu_plan::flex_attention_forward"] == 2 * products
    assert found["gpu_plan::flex_attention_backward"] == 5 * products


def test_what_is_not_compiled_is_refused() -> None:
    flex = Flex(lambda: False)
    with flex.answered(), pytest.raises(InputError, match=r"torch\.compile\(flex_attention\)"):
        flex_attention(*operands(), enable_gqa=True)
    assert flex.lines() == ()
