"""`plan train.py` from the command line: the same figures as the model by name, and what a script decides itself."""

import json
from pathlib import Path

import pytest

from gpu_plan.cli import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TRAINER = str(EXAMPLES / "train_trainer.py")


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Runs words in an empty folder with a cache of their own; gives code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))

    def call(*words):
        code = main(list(words))
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_script_equals_its_model_and_decides_what_is_its_own(run):
    cluster = ("--gpus", "8xH100", "--strategy", "ddp", "--pin", "--json", "--explain")
    code, out, err = run(TRAINER, *cluster, "--", "--bf16")
    assert code == 0
    assert "executing" in err
    captured = json.loads(out)
    workload = captured["workload"]
    assert (workload["precision"], workload["micro_batch"], workload["seq_len"]) == ("bf16-mixed", 4, 128)
    assert workload["optimizer"] == "adamw-fused"
    assert {workload["basis"][name] for name in ("precision", "micro_batch", "seq_len", "optimizer")} == {"captured"}
    options = ("--precision", "bf16-mixed", "--micro-batch", "4", "--seq-len", "128", "--stack", "trainer")
    code, out, _ = run(str(EXAMPLES / "tiny-llama"), *cluster, *options, "--optimizer", "adamw-fused")
    named = json.loads(out)
    script, model = (document["plans"][0]["memory"] for document in (captured, named))
    # The Trainer hands over num_items_in_batch, one number, and keeps what it is divided by.
    one_number = 512
    assert script["peak_allocated_bytes"] - model["peak_allocated_bytes"] == 2 * one_number
    assert {key: script["at_peak"][key] - model["at_peak"][key] for key in model["at_peak"]} == {
        **dict.fromkeys(model["at_peak"], 0), "inputs": one_number, "activations": one_number,
    }  # fmt: skip
    assert any((line["origin"] or "").startswith("train_trainer.py:") for line in captured["plans"][0]["explain"])

    for words, said in (
        (("--seq-len", "512"), "--seq-len 512: the script decides that, and has 128"),
        (("--attention", "eager"), "--attention eager: the script decides that, and has sdpa"),
        (("--fused-loss",), "--fused-loss is about a model by name"),
        (("--peft", "lora"), "--peft lora: the script decides that, and has none"),
    ):
        code, out, err = run(TRAINER, *cluster, *words, "--", "--bf16")
        assert (code, out) == (2, "")
        assert said in err.splitlines()[-1]
