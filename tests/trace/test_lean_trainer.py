"""Adapters on one GPU where a loop of one's own would take the node's RAM: planned for a trainer that does without."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.cli import main

WORDS_OF_NO_USE = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2} | dict(
    hidden_size=1024, intermediate_size=4096, num_attention_heads=8, num_key_value_heads=8, vocab_size=128000
)
"""Its embedding, its head and their logits are most of it."""
ASKED = ("--peft", "qlora", "--seq-len", "1024", "--set", "memory.reserve=18750MiB")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "config.json").write_text(json.dumps(WORDS_OF_NO_USE))
    return str(tmp_path)


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_trainer_that_needs_the_gpu_alone(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = planned(capsys, model, "--gpus", "1xL4", *ASKED)
    workload, first = document["workload"], document["plans"][0]["strategy"]
    assert (workload["stack"], workload["basis"]["stack"]) == ("trl", "searched")
    assert (first["name"], first["offload"]) == ("single", "none")
    assert document["headline"] == (
        "planned for TRL's SFTTrainer (--stack trl), since no stack was named: it needs the GPU alone, where a loop"
        " around Accelerate after peft's prepare_model_for_kbit_training takes 3.8 of 3.7 GiB (--stack accelerate plans"
        " that)"
    )


def test_adapters_of_trl_are_not_scaled_in_fp16(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A T4 has no bf16, and GradScaler does not unscale bf16 gradients: the next trainer is asked."""
    words = (model, "--gpus", "1xT4", "--peft", "qlora", "--seq-len", "1024")
    document = planned(capsys, *words, "--set", "memory.reserve=11500MiB")
    assert document["workload"]["stack"] == "unsloth"
    assert document["plans"][0]["strategy"]["offload"] == "none"
    named = planned(capsys, *words, "--stack", "trl")
    assert any("ends with an error at bf16 gradients" in line for line in named["warnings"])


@pytest.mark.parametrize("named", [("--stack", "accelerate"), ("--offload", "optimizer")])
def test_what_is_named_is_planned(named: tuple[str, ...], model: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = planned(capsys, model, "--gpus", "1xL4", *ASKED, *named)
    assert document["workload"]["stack"] == "accelerate"
    assert document["plans"][0]["strategy"]["offload"] == "optimizer"


def test_where_the_loop_fits_it_is_the_loop(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = planned(capsys, model, "--gpus", "1xL4", "--peft", "qlora", "--seq-len", "1024")
    assert (document["workload"]["stack"], document["headline"]) == ("accelerate", None)


@pytest.mark.parametrize("word", ["speed", "memory", "cost"])
def test_a_loop_that_fits_behind_an_offload_stays(word: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An offload may be first by the word that was given, where the GPU alone fits as well."""
    words = (*ASKED[:-1], "memory.reserve=18GiB", "--prefer", word)
    document = planned(capsys, model, "--gpus", "1xL4", *words)
    assert (document["workload"]["stack"], document["headline"]) == ("accelerate", None)
    assert any(one["strategy"]["offload"] == "none" for one in document["plans"])
