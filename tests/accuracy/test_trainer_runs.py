"""Steps of the Trainer's published runs: what versions and kernels of their time did otherwise is in the trace."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import modeling_flash_attention_utils
from transformers.models.mistral import modeling_mistral

from benchmarks.accuracy.memory.cases import case_of
from benchmarks.accuracy.models import Models
from benchmarks.accuracy.trainer.kernels import without_last
from benchmarks.accuracy.trainer.setup import Setup
from benchmarks.accuracy.trainer.step import build_as_run, replaced, trace_of
from benchmarks.accuracy.trainer.strategies import regime_of, strategy_of
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.trace.events import StepTrace

DATA = Path("benchmarks/data/published_memory.json")
ROWS: dict[str, dict[str, Any]] = {row["id"]: row for row in json.loads(DATA.read_text())["rows"]}
ACTIVATIONS = "tm-fms-acceleration-0176"
"""A row of Mistral-7B whose peak lies in backward: its states alone are 6 % low."""
_TINY_MISTRAL = {
    "model_type": "mistral",
    "architectures": ["MistralForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
}


def _setup(name: str) -> Setup:
    case = case_of(ROWS[name], Models())
    assert isinstance(case, Setup)
    return case


@pytest.fixture(scope="module")
def trace() -> StepTrace:
    setup = _setup(ACTIVATIONS)
    return trace_of(setup, regime_of(setup, strategy_of(setup)), 1)


def test_replacements_do_not_outlive_the_trace() -> None:
    setup = _setup(ACTIVATIONS)
    assert setup.repeats_keys
    assert setup.fused_kernels
    rotary = modeling_mistral.apply_rotary_pos_emb
    with replaced(build_model(_TINY_MISTRAL), setup):
        assert modeling_mistral.apply_rotary_pos_emb is not rotary
    assert modeling_mistral.apply_rotary_pos_emb is rotary
    assert modeling_flash_attention_utils._flash_fn is None


def test_repeated_keys_are_saved_for_backward(trace: StepTrace) -> None:
    """transformers before 4.48 keeps 32 heads of keys and values where 8 are projected."""
    assert "[1, 8, 4, 4096, 128] bfloat16" in trace.tensor_shape


def test_the_script_widened_the_embeddings(trace: StepTrace) -> None:
    assert (32001, 4096) in {tuple(p.shape) for p in trace.parameters}


def test_a_full_slice_was_recorded_in_torch_2_4() -> None:
    """Its backward makes a block of the shorter shape before that of the whole one."""
    whole = torch.ones(1, 4, 3, requires_grad=True)
    shifted = without_last(whole)
    assert torch.equal(shifted, whole[:, :-1])
    assert shifted.grad_fn is not None
    ((before, _),) = shifted.grad_fn.next_functions
    assert type(before).__name__ == "SliceBackward0"


def test_frequencies_per_layer_where_the_model_has_any() -> None:
    """A model without rotary positions is built as it is: no attribute is taken for granted."""
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_layer": 2, "n_head": 4}
    row = {**ROWS[ACTIVATIONS], "fused_or_chunked_loss": "none", "notes": ""}
    setup = case_of(row, Models())
    assert isinstance(setup, Setup)
    from dataclasses import replace

    without = replace(setup, config=json.dumps({**config, "vocab_size": 256}), loss="installed", fused_kernels=False)
    assert build_as_run(without).config.model_type == "gpt2"
