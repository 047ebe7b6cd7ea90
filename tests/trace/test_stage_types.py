"""Stages of a generation receive hidden states in the type of their first parameter, whatever module has it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gpu_plan.cli import main
from gpu_plan.planner.trace.generation import session
from gpu_plan.planner.trace.generation.staging import check_stages
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from tests.accuracy.architectures import ARCHITECTURES
from tests.trace.test_flash_sinks import config as gpt_oss


class _Owner(nn.Module):
    """A layer whose first parameter is its own, as gpt-oss's sinks are its attention's."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.inside = nn.Linear(2, 2, dtype=torch.float32)
        self.own = nn.Parameter(torch.empty(2, dtype=dtype))


class _Model(nn.Module):
    base_model_prefix = "model"

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(4, 2, dtype=torch.bfloat16)
        self.model.norm = nn.Identity()
        self.model.layers = nn.ModuleList([_Owner(dtype) for _ in range(4)])

    def get_input_embeddings(self) -> nn.Module:
        found: nn.Module = self.model.embed_tokens
        return found


def test_a_parameter_of_another_name_counts() -> None:
    check_stages(_Model(torch.bfloat16), 2)
    with pytest.raises(CannotSplitError, match="stored as float32"):
        check_stages(_Model(torch.float32), 2)


def _awq() -> dict[str, Any]:
    """GPTQModel nn_modules/qlinear/marlin.py: qweight is the first parameter; the bias of Qwen2 is a buffer."""
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
    return {
        **ARCHITECTURES["qwen2"].config(**sizes),
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"},
    }


@pytest.mark.parametrize("model", ["gpt-oss", "awq"])
def test_two_gpus_are_planned(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(gpt_oss() if model == "gpt-oss" else _awq()))
    words = ["--gpus", "2xA100", "--task", "infer", "--context", "64", "--quiet", "--json"]
    assert main([str(tmp_path), *words]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["plans"]
    # The packed weight is int32, which would ruin what a stage receives.
    assert ("pp" in {plan["strategy"]["name"] for plan in (*told["plans"], *told["rejected"])}) == (model != "awq")


def test_a_part_that_does_not_run_leaves_the_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As stages of a class whose layers hand on more than hidden states."""

    def broken(model: nn.Module, degree: int) -> None:
        raise ValueError("not enough values to unpack")

    monkeypatch.setattr(session, "stage", broken)
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "config.json").write_text(json.dumps(ARCHITECTURES["llama-3"].config()))
    words = [str(tmp_path), "--gpus", "2xA100", "--task", "infer", "--context", "64", "--quiet", "--json"]
    assert main(words) == 0
    names = {plan["strategy"]["name"] for plan in json.loads(capsys.readouterr().out)["plans"]}
    assert {"replicas", "tp"} <= names
    assert "pp" not in names
    assert main([*words, "--pp", "2"]) == 2
    assert "cannot be traced so: ValueError: not enough values to unpack" in capsys.readouterr().err
