"""--set dtype.params in whole plans: weights loaded in 16 bits and trained under autocast."""

import json

import pytest

from gpu_plan.cli import main

QWEN = "Qwen/Qwen2-0.5B"


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))


def at_peak(capsys, *words, gpus="2xA100"):
    main([QWEN, "--gpus", gpus, "--pin", "--seq-len", "512", "--json", *words])
    document = json.loads(capsys.readouterr().out)
    return (document["plans"] + document["rejected"])[0]["memory"]


@pytest.mark.parametrize("gpus", ["1xA100", "2xA100"])
def test_weights_gradients_and_state_are_halved(capsys, gpus):
    plain = at_peak(capsys, gpus=gpus)
    loaded = at_peak(capsys, "--set", "dtype.params=bfloat16", gpus=gpus)
    for category in ("parameters", "optimizer_state"):
        assert loaded["at_peak"][category] == pytest.approx(plain["at_peak"][category] / 2, rel=0.01)
    assert loaded["at_rest_bytes"] < 0.55 * plain["at_rest_bytes"]
    spelled = at_peak(capsys, "--set", "dtype.params=float32", gpus=gpus)
    assert spelled == plain


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--precision", "bf16"), "bf16 says it already"),
        (("--precision", "fp16-mixed"), "needs --precision bf16-mixed"),
        (("--peft", "lora"), "peft decides"),
        (("--strategy", "fsdp"), "is about --strategy single, ddp, pp and ddp_pp, not fsdp"),
    ],
)
def test_one_line(capsys, words, message):
    assert main([QWEN, "--gpus", "2xA100", "--set", "dtype.params=bfloat16", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
