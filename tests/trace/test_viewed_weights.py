"""Which weights a trace says were used through views that autograd keeps."""

import pytest

from gpu_plan.planner.trace.events import numberless
from tests.support.ranks.case import RankCase
from tests.support.ranks.replay import trace_of

FALCON = ("mlp.dense_4h_to_h", "mlp.dense_h_to_4h", "self_attention.dense", "self_attention.query_key_value")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("falcon", tuple(f"transformer.h.#.{layer}.weight" for layer in FALCON)),
        ("llama-3", ()),
        ("gpt2", ()),
        ("mixtral", tuple(f"model.layers.#.mlp.experts.{weight}" for weight in ("down_proj", "gate_up_proj"))),
    ],
)
def test_views_of_weights_outside_of_the_linear_function(name: str, expected: tuple[str, ...]) -> None:
    """Falcon's own linear class multiplies by a transpose; others call torch's function, or take the weight itself."""
    assert trace_of(RankCase(architecture=name)).layout.viewed == expected


def test_names_of_repeated_blocks_have_no_number() -> None:
    assert numberless("model.layers.11.mlp.experts.3.w.weight") == "model.layers.#.mlp.experts.#.w.weight"
    assert numberless("head.0") == "head.0"
