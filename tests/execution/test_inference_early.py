"""`@generate` on the example as shipped, and what is refused before a plan is made."""

import json
import shutil
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.commands.job import asking
from gpu_plan.executor.inference.loading.random_weights import made_folder, random_weights
from gpu_plan.planner.errors import PlanError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TINY = EXAMPLES / "tiny-llama"
PROMPTS = str(EXAMPLES / "prompts.jsonl")


@pytest.fixture
def unplanned(tmp_path, monkeypatch, capsys):
    """Runs `plan MODEL --task infer --execute @generate` in an empty folder; planning would fail the test."""

    def refuse(*args, **kwargs):
        raise AssertionError("a plan was made")

    monkeypatch.setattr(asking, "find_plans", refuse)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path.parent / f"{tmp_path.name}-cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def run(model, *words, options=("--gpus", "cpu", "--context", "64", "--new-tokens", "4")):
        code = main([str(model), "--task", "infer", *options, "--execute", "@generate", "--", *words])
        told = capsys.readouterr()
        assert told.out == ""
        assert list(tmp_path.iterdir()) == []
        return code, told.err

    return run


def test_missing_weights_are_refused_before_planning(unplanned):
    code, err = unplanned(TINY, "--prompts", PROMPTS, "--output", "out.jsonl")
    assert code == 3
    assert "has no safetensors file: prompts need the weights, not only the config; -- --random-weights makes" in err
    code, err = unplanned(TINY / "config.json", "--prompts", PROMPTS, "--output", "out.jsonl")
    assert (code, "has no safetensors file" in err) == (3, True)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--prompts", "nowhere.jsonl", "--output", "o"], 3, "there is no"),
        (["--prompts", PROMPTS, "--output", "no/folder/o"], 3, "there is no folder"),
        (["--prompts", PROMPTS], 2, "--output"),
        (["--prompts", PROMPTS, "--output", "o", "--batch", "0"], 2, "--batch 0 is not a positive number"),
        (["--prompts", PROMPTS, "--output", "o", "--model", "no/such/folder/here"], 3, "no/such/folder/here"),
        (["--prompts", PROMPTS, "--output", "o", "--model", "gpt2"], 3, "the weights of gpt2 are not on this machine"),
        (
            ["--prompts", PROMPTS, "--output", "o", "--model", "gpt2", "--random-weights"],
            2,
            "is not a folder that has one",
        ),
    ],
)
def test_words_of_the_runner_are_refused_before_planning(unplanned, words, code, message):
    found, err = unplanned(TINY, *words)
    assert (found, message in err) == (code, True), err
    assert err.count("plan: error: ") == 1


def test_random_weights_are_made_once_and_are_of_the_config(tmp_path, monkeypatch):
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model").mkdir()
    shutil.copy(TINY / "config.json", tmp_path / "model")
    (tmp_path / "model" / "tokenizer_config.json").write_text("{}")
    folder = random_weights(str(tmp_path / "model"))
    assert folder == made_folder(str(tmp_path / "model" / "config.json"))
    assert sorted(path.name for path in folder.iterdir() if path.name != "generation_config.json") == [
        "config.json", "model.safetensors", "tokenizer_config.json"
    ]  # fmt: skip
    made = (folder / "model.safetensors").stat()
    assert random_weights(str(tmp_path / "model")) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made.st_mtime_ns
    assert [path.name for path in (tmp_path / "cache" / "random-weights").iterdir()] == [folder.name]


def test_random_weights_of_a_large_model_are_not_made(tmp_path, monkeypatch):
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    config = json.loads((TINY / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 10_000_000}))
    with pytest.raises(PlanError, match="fetch the real weights"):
        random_weights(str(tmp_path))
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
def test_the_example_generates_as_shipped(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    words = ["--gpus", "cpu", "--context", "64", "--new-tokens", "4", "--execute", "@generate"]
    runner = ["--prompts", PROMPTS, "--output", "out.jsonl", "--random-weights", "--ignore-stop"]
    assert main([str(TINY), "--task", "infer", *words, "--", *runner]) == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == ["count", "short", "long"]
    assert all(len(row["output_ids"]) == 4 for row in rows)
    assert not list(TINY.glob("*.safetensors"))
