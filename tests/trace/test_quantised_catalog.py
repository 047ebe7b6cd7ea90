"""Quantised catalog models: what they store, pinned, and against published counts."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.catalog_index import find_entry
from gpu_plan.planner.model.quantization import parse_quantize
from gpu_plan.planner.model.quantization.apply import quantise
from tests.support.count_quantised import RULES, built, counted

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "quantised.json").read_text())
PUBLISHED_BYTES = {
    "openai/gpt-oss-20b": 13_761_264_768,
    "openai/gpt-oss-120b": 65_248_815_744,
}
"""`metadata.total_size` of the hub's model.safetensors.index.json."""


def config_of(model_id: str) -> dict[str, Any]:
    entry = find_entry(model_id)
    assert entry is not None
    config: dict[str, Any] = json.loads(entry.path.read_text())
    return config


SAMPLE = ("Qwen/Qwen3-32B-FP8", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b")


@pytest.mark.parametrize(
    "model_id", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.slow) for name in sorted(RULES)]
)
def test_counts_are_the_published_ones(model_id: str) -> None:
    config = config_of(model_id)
    facts = built(config)
    entry = find_entry(model_id)
    assert entry is not None
    assert counted(config, facts, RULES[model_id]) == entry.published_params
    assert facts.checkpoint_bytes == GOLDEN[model_id]["checkpoint_bytes"]
    assert facts.resident_bytes == GOLDEN[model_id]["resident_bytes"]
    if model_id in PUBLISHED_BYTES:
        assert facts.checkpoint_bytes == PUBLISHED_BYTES[model_id]


def test_bytes_of_a_published_awq_checkpoint() -> None:
    """hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4: `metadata.total_size` of its index."""
    scheme = parse_quantize("awq-4bit-128")
    assert scheme is not None
    facts = quantise(build_model(config_of("meta-llama/Llama-3.1-70B"), dtype=torch.float16), scheme)
    assert facts.checkpoint_bytes == 39_767_785_472


@pytest.mark.slow
@pytest.mark.parametrize("model_id", sorted(set(GOLDEN) - set(RULES)))
def test_counts_are_pinned(model_id: str) -> None:
    """Published counts of these are of other tensors (README of the golden file's maker); ours must not drift."""
    facts = built(config_of(model_id))
    assert (facts.layers, facts.checkpoint_bytes, facts.resident_bytes) == tuple(
        GOLDEN[model_id][name] for name in ("layers", "checkpoint_bytes", "resident_bytes")
    )
