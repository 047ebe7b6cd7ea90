"""The first line of a report whose first plan keeps something in the node's RAM: what does without, evaluated."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.cli import main

SMALL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2} | dict(
    hidden_size=1024, intermediate_size=4096, num_attention_heads=8, num_key_value_heads=8, vocab_size=32000
)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    return str(tmp_path)


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_fused_update_that_does_without_the_nodes_ram(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """AdamW's temporaries alone do not fit beside what one GPU holds."""
    words = (model, "--gpus", "1xT4", "--seq-len", "256", "--set", "memory.reserve=13000MiB")
    document = planned(capsys, *words)
    assert document["plans"][0]["strategy"]["offload"] == "optimizer"
    said = document["headline"]
    assert said.startswith("--optimizer adamw-fused trains the same without the node's RAM: single GPU, micro batch 1")
    first = document["alternatives"][0]
    assert (first["change"], first["host_bytes_per_node"]) == ("--optimizer adamw-fused", 0)


def test_a_plan_that_fits_by_itself_has_no_such_line(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = planned(capsys, model, "--gpus", "1xT4", "--seq-len", "256")
    assert document["plans"][0]["strategy"]["offload"] == "none"
    assert document["headline"] is None
