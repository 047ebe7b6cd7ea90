"""`--max seq-len` of what has no sequence, and of models that know fewer positions than memory holds."""

import json
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.job import largest_model
from gpu_plan.planner.model.catalog_index import load_index

GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]} | dict(
    n_embd=1024, n_layer=2, n_head=8, n_positions=256, vocab_size=1024
)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))


def test_a_length_beyond_the_models_positions_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GPT2))
    words = [str(tmp_path), "--gpus", "1xT4", "--strategy", "single", "--set", "memory.reserve=13800MiB", "--max"]
    assert main([*words, "seq-len", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["value"] > 256
    assert found["positions"] == 256
    assert main([*words, "seq-len"]) == 0
    told = capsys.readouterr().out.splitlines()[1]
    assert told.startswith(f"--seq-len {found['value']} is longer than the 256 positions of ")


def test_pictures_have_no_sequence_to_lengthen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["google/vit-base-patch16-224", "--gpus", "1xT4", "--max", "seq-len"]) == 2
    assert (
        capsys.readouterr().err.splitlines()[-1].startswith("plan: error: --max seq-len: google/vit-base-patch16-224")
    )


SMALL, SMALLER, LARGE = "HuggingFaceTB/SmolLM2-135M", "EleutherAI/pythia-70m", "meta-llama/Llama-3.1-8B"


def test_the_largest_of_all_decoders(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a model; one whose weights and states alone are too large is not traced for it."""
    few = {name: load_index()[name] for name in (SMALLER, LARGE, SMALL, "google/vit-base-patch16-224")}
    monkeypatch.setattr(largest_model, "load_index", lambda: few)
    assert main(["--max", "model", "--gpus", "1xT4", "--seq-len", "512", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["value"], found["beyond"]) == (None, SMALL, [])
    assert main(["--max", "model", "--gpus", "1xT4", "--seq-len", "512"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(
        f"{SMALL} is the largest decoder of the catalog that fits 1xT4 without offloading: single GPU"
    )


def test_offloads_rule_no_size_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--max", "model", "--gpus", "1xT4", "--offload", "all"]) == 2
    assert "asks what the GPUs alone hold: leave --offload out" in capsys.readouterr().err.splitlines()[-1]
