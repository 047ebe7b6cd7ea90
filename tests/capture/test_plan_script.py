"""`plan train.py` from the command line: the same figures as the model by name, and what a script decides itself."""

import json
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.executor.job import Job
from gpu_plan.executor.launch.prepare import prepare
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.planner.plan.files import load

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
    assert (workload["max_grad_norm"], workload["basis"]["max_grad_norm"]) == (1.0, "captured")
    assert workload["script"] == {"micro_batch": 4, "grad_accum": 1, "seq_len": 128}
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
        (("--fused-loss",), "--fused-loss applies to a model given by name"),
        (("--peft", "lora"), "--peft lora: the script decides that, and has none"),
    ):
        code, out, err = run(TRAINER, *cluster, *words, "--", "--bf16")
        assert (code, out) == (2, "")
        assert said in err.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("norm", [0.5, 0.0])
def test_the_norm_that_a_script_clips_to_reaches_deepspeed_and_no_other(run, tmp_path, norm):
    """DeepSpeed clips by its file alone, and to 1.0 where that says nothing."""
    words = ("--max_grad_norm", str(norm))
    script = EXAMPLES / "train.py"
    options = ("--gpus", "2xcpu", "--strategy", "zero2", "--pin", "--save", "plan.json", "--json")
    code, out, err = run(str(script), *options, "--", *words)
    assert code == 0, err
    document = json.loads(out)
    workload = document["workload"]
    assert (workload["max_grad_norm"], workload["clipping"]) == (norm, norm > 0)
    assert not any("clip" in assumption["text"] for assumption in document["assumptions"]), "it is known"
    told = "inf" if norm == 0 else str(norm)
    assert (
        f"--gradient_clipping {told}" in document["plans"][0]["command"]
        or "--execute" in (document["plans"][0]["command"])
    )
    job = Job(saved=load("plan.json"), script=script, arguments=words, working_directory=tmp_path)
    launch = prepare(job, attempt=1, folder=RunFolder(tmp_path / "runs" / "RUN"), resume_from=None)
    assert json.loads(launch.files["deepspeed.json"])["gradient_clipping"] == norm
