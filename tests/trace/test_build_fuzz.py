"""Whatever a config says, building gives a model or one line, soon."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.catalog_index import load_index
from tests.support.shrink import shrink

SEEDS = [
    "HuggingFaceTB/SmolLM-135M",
    "google-t5/t5-small",
    "google/vit-base-patch16-224",
    "Qwen/Qwen2-VL-2B-Instruct",
    "ai21labs/Jamba-v0.1",
    "deepseek-ai/DeepSeek-V3",
    "facebook/wav2vec2-base-960h",
]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-2, 40),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-2, 5000), max_size=4),
    st.dictionaries(st.sampled_from(["rope_type", "factor", "model_type", "x"]), st.integers(-2, 9), max_size=2),
)


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A real config with one to three of its values, nested ones included, replaced."""
    config = shrink(json.loads(load_index()[draw(st.sampled_from(SEEDS))].path.read_text()))
    for _ in range(draw(st.integers(1, 3))):
        part = config
        while True:
            key = draw(st.sampled_from(sorted(part)))
            if isinstance(part[key], dict) and part[key] and draw(st.booleans()):
                part = part[key]
                continue
            part[key] = draw(VALUES)
            break
    return config


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(mutated())
def test_a_model_or_one_line(config: dict[str, Any]) -> None:
    try:
        model = build_model(config)
    except PlanError as refusal:
        message = str(refusal)
        assert message
        assert "\n" not in message
        assert len(message) < 600
    else:
        assert isinstance(model, nn.Module)
        assert all(parameter.device.type == "meta" for parameter in model.parameters())
