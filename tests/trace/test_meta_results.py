"""What is remembered of an operator on meta is what the operator itself would make."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from transformers import LlamaConfig, LlamaForCausalLM

from gpu_plan.planner.trace.inputs.meta_ops import META_OPS
from gpu_plan.planner.trace.recording.operators import meta_results, work
from gpu_plan.planner.trace.recording.operators.meta_results import meta_result

aten = torch.ops.aten


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meta_results, "_kept", {})


def described(out: Any) -> list[tuple[Any, ...]]:
    results = [out] if isinstance(out, torch.Tensor) else list(out)
    return [(one.shape, one.stride(), one.dtype, one.untyped_storage().nbytes()) for one in results]


CASES = {
    "product": (aten.mm.default, (empty(4, 8), empty(8, 3))),
    "of a transposed": (aten.mul.Tensor, (empty(4, 8).t(), empty(8, 4).to(torch.bfloat16))),
    "an integer": (aten.div.Tensor, (empty(4, dtype=torch.int64), 2)),
    "normalised": (aten.native_layer_norm.default, (empty(2, 3, 8), [8], empty(8), empty(8), 1e-5)),
    "joined": (aten.cat.default, ([empty(2, 3), empty(2, 5)], 1)),
    "looked up": (aten.embedding.default, (empty(100, 8), empty(2, 3, dtype=torch.int64))),
}


@pytest.mark.parametrize("name", CASES)
def test_the_second_answer_is_the_first_and_a_storage_of_its_own(name: str) -> None:
    func, args = CASES[name]
    asked: list[object] = []

    def run(*given: Any) -> Any:
        asked.append(given)
        return func(*given)

    first, second = (meta_result(func, run, args, {})[0] for _ in range(2))
    assert len(asked) == 1
    assert described(first) == described(second) == described(func(*args))
    one, other = (out if isinstance(out, torch.Tensor) else out[0] for out in (first, second))
    assert one.untyped_storage()._cdata != other.untyped_storage()._cdata


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (aten.view.default, (empty(4, 8), [8, 4])),
        (aten._unsafe_view.default, (empty(4, 8), [8, 4])),
        (aten.add_.Tensor, (empty(4), empty(4))),
        (aten.expand.default, (empty(1, 4), [3, 4])),
    ],
)
def test_what_shares_or_writes_a_storage_is_asked_each_time(func: Any, args: tuple[Any, ...]) -> None:
    for _ in range(3):
        assert meta_result(func, func, args, {})[0].untyped_storage()._cdata == args[0].untyped_storage()._cdata


def test_equal_numbers_of_other_types_are_other_arguments() -> None:
    values = empty(4, dtype=torch.int64)
    kinds = [meta_result(aten.mul.Tensor, aten.mul.Tensor, (values, factor), {})[0].dtype for factor in (1, 1.0, True)]
    assert kinds == [torch.int64, torch.float32, torch.int64]


def test_an_argument_with_values_is_the_operators_own_affair() -> None:
    index = torch.tensor([1, 2])
    assert meta_result(aten.index.Tensor, lambda *_: "asked", (torch.zeros(4), [index]), {}) == ("asked", None)
    assert meta_results._kept == {}


class Remembering(TorchDispatchMode):
    """A step in which every operator is answered from memory where it can be."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return meta_result(func, func, args, kwargs or {})[0]


def test_what_one_layer_has_asked_is_asked_for_no_other() -> None:
    def step(layers: int) -> int:
        config = LlamaConfig(num_hidden_layers=layers, hidden_size=16, intermediate_size=32, vocab_size=8,
                             num_attention_heads=2)  # fmt: skip
        with torch.device("meta"):
            model = LlamaForCausalLM(config)
        tokens = torch.empty(2, 8, dtype=torch.int64, device="meta")
        with Remembering():
            model(input_ids=tokens, position_ids=tokens, labels=tokens).loss.backward()
        gradients = [(p.grad.shape, p.grad.stride()) for p in model.parameters() if p.grad is not None]
        assert gradients == [(p.shape, p.stride()) for p in model.parameters()]
        return len(meta_results._kept)

    once = step(2)
    assert once > 50
    assert step(6) == once


def test_what_an_operator_works_out_is_counted_once_for_equal_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = torch.ops.aten._scaled_dot_product_flash_attention.default
    formula, asked = flop_registry[operator._overloadpacket], []

    def counted(*args: Any, **words: Any) -> Any:
        asked.append(tuple(args[0].shape))
        return formula(*args, **words)

    monkeypatch.setitem(flop_registry, operator._overloadpacket, counted)
    monkeypatch.setattr(work, "_counted", {})
    found = []
    for length in (64, 64, 128):
        query, key, value = (torch.empty(1, 2, length, 32, dtype=torch.bfloat16, device="meta") for _ in range(3))
        found.append(work.operator_flops(operator, (query, key, value), operator(query, key, value)))
    assert found[0] == found[1] == 4 * 2 * 64 * 64 * 32
    assert found[2] == 4 * found[0]
    assert asked == [(1, 2, 64, 32), (1, 2, 128, 32)]


def test_random_numbers_are_drawn_into_what_is_given() -> None:
    draw = META_OPS[torch.ops.aten.exponential_.default]
    given = torch.empty(3, device="meta")
    assert draw(given, 2.0) is given
    here = torch.zeros(3)
    assert draw(here) is here
    assert bool((here > 0).all())
