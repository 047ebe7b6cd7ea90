"""Which layers are the same kind."""

import json
from typing import Any

import pytest
import torch
from torch import nn

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.catalog_index import load_index
from gpu_plan.planner.trace.folding.blocks import BlockRun, repeated_blocks, signature_of


def blocks(model_id: str) -> dict[str, BlockRun]:
    model = build_model(json.loads(load_index()[model_id].path.read_text()))
    found = repeated_blocks(model)
    assert all(model.get_submodule(run.name) is run.module for run in found)
    return {run.name: run for run in found}


def pattern(run: BlockRun) -> str:
    """Signatures as letters in order of first appearance."""
    letters = dict(zip(run.kinds, "ABCDEFGH", strict=False))
    return "".join(letters[signature] for signature in run.signatures)


@pytest.mark.parametrize(
    ("model_id", "expected"),
    [
        ("meta-llama/Llama-3.1-8B", {"model.layers": "A" * 32}),
        ("google/gemma-2-2b", {"model.layers": "AB" * 13}),
        ("google/gemma-3-1b-it", {"model.layers": "AAAAAB" * 4 + "AA"}),
        ("deepseek-ai/DeepSeek-V3", {"model.layers": "AAA" + "B" * 58}),
        ("ai21labs/Jamba-v0.1", {"model.layers": "ABABCBAB" * 4}),
        ("google-t5/t5-small", {"encoder.block": "ABBBBB", "decoder.block": "ABBBBB"}),
        ("openai/whisper-tiny", {"model.encoder.layers": "AAAA", "model.decoder.layers": "AAAA"}),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"model.layers": "AAAB" * 12}),
        (
            "llava-hf/llava-1.5-7b-hf",
            {"model.vision_tower.encoder.layers": "A" * 23 + "B", "model.language_model.layers": "A" * 32},
        ),
        (
            "Qwen/Qwen2.5-VL-7B-Instruct",
            {"model.visual.blocks": "AAAAAAAB" * 4, "model.language_model.layers": "A" * 28},
        ),
        (
            "Qwen/Qwen3-VL-2B-Instruct",
            {
                "model.visual.blocks": "AAAAAB" * 3 + "A" * 6,
                "model.language_model.layers": "AAA" + "B" * 25,
            },
        ),
        ("microsoft/swin-tiny-patch4-window7-224", {"swin.encoder.layers.2.blocks": "ABABAB"}),
    ],
)
def test_kinds_of_layers(model_id: str, expected: dict[str, str]) -> None:
    assert {name: pattern(run) for name, run in blocks(model_id).items()} == expected


def test_runs_are_the_run_lengths() -> None:
    run = blocks("deepseek-ai/DeepSeek-V3")["model.layers"]
    assert [count for _, count in run.runs()] == [3, 58]
    assert tuple(signature for signature, _ in run.runs()) == run.kinds


class Layer(nn.Module):
    def __init__(self, index: int, width: int = 4, window: int | None = None, act: Any = torch.relu) -> None:
        super().__init__()
        self.layer_idx = index
        self.window = window
        self.act = act
        self.proj = nn.Linear(width, width)


def test_position_does_not_matter() -> None:
    assert signature_of(Layer(0)) == signature_of(Layer(5))


def frozen() -> Layer:
    layer = Layer(0)
    layer.proj.requires_grad_(False)
    return layer


class Gain(nn.Module):
    """Its width is that of its parameter, and nothing else tells it."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape))


def test_shapes_of_parameters_matter_by_themselves() -> None:
    assert signature_of(Gain(4)) == signature_of(Gain(4))
    assert len({signature_of(Gain(*shape)) for shape in ((4,), (8,), (2, 4), (4, 2))}) == 4


def test_rates_of_dropout_matter_where_one_drops_nothing() -> None:
    """A rate that grows with depth runs the same operators; at zero none is run."""
    none, little, much = (signature_of(nn.Dropout(rate)) for rate in (0.0, 0.1, 0.3))
    assert none != little == much


def buffered() -> Layer:
    layer = Layer(0)
    layer.register_buffer("mask", torch.zeros(3))
    return layer


@pytest.mark.parametrize(
    "other",
    [
        Layer(0, width=5),
        Layer(0, window=128),
        Layer(0, act=torch.tanh),
        Layer(0).to(torch.bfloat16),
        frozen(),
        buffered(),
    ],
    ids=["width", "window", "activation", "dtype", "frozen", "buffer"],
)
def test_whatever_changes_behaviour_matters(other: nn.Module) -> None:
    assert signature_of(other) != signature_of(Layer(0))


def test_short_parameterless_and_all_different_lists_are_left_out() -> None:
    model = nn.Module()
    model.short = nn.ModuleList(Layer(i) for i in range(3))
    model.empty = nn.ModuleList(nn.ReLU() for _ in range(6))
    model.different = nn.ModuleList(Layer(i, width=i + 1) for i in range(6))
    model.repeated = nn.ModuleList(nn.ModuleList(Layer(j) for j in range(6)) for _ in range(5))
    assert [run.name for run in repeated_blocks(model)] == ["repeated"]
