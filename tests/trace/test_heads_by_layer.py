"""Heads that differ from layer to layer (Gemma 4) are each asked to divide over the ranks."""

from types import SimpleNamespace
from typing import Any

import pytest

from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.parallel.tensor import check_heads


class _Config:
    """As transformers' heterogeneous configs: layers tell what the whole refuses to."""

    def __init__(self, *heads: int) -> None:
        self.per_layer_config = [SimpleNamespace(num_attention_heads=8, num_key_value_heads=count) for count in heads]

    def __getattr__(self, key: str) -> Any:
        raise RuntimeError(f"{key} is a per-layer attribute")

    def get_text_config(self) -> "_Config":
        return self


def test_each_layer_s_heads_must_divide() -> None:
    check_heads(SimpleNamespace(config=_Config(8, 2, 8)), 2)
    with pytest.raises(CannotSplitError, match="2 key-value heads, which 4 GPUs do not divide"):
        check_heads(SimpleNamespace(config=_Config(8, 2, 8)), 4)


def test_one_number_for_all_is_asked_once() -> None:
    plain = SimpleNamespace(num_attention_heads=6, num_key_value_heads=6)
    plain.get_text_config = lambda: plain
    check_heads(SimpleNamespace(config=plain), 3)
    with pytest.raises(CannotSplitError, match="6 attention heads, which 4"):
        check_heads(SimpleNamespace(config=plain), 4)
