"""--precision fp8-mixed in whole plans, and where it is refused."""

import json

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.float8 import as_it_was_built, convert_linears, keep_as_built
from gpu_plan.planner.model.kernels.transformer_engine import TeDevice, convert_to_transformer_engine
from tests.accuracy.architectures import ARCHITECTURES

QWEN = "Qwen/Qwen2-0.5B"


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))


def planned(capsys, *words, gpus="2xH100"):
    main([QWEN, "--gpus", gpus, "--pin", "--seq-len", "512", "--json", "--quiet", *words])
    captured = capsys.readouterr()
    assert captured.err == ""
    document = json.loads(captured.out)
    return document, (document["plans"] + document["rejected"])[0]


def test_what_is_traced_after_a_float8_step_is_not_in_float8():
    """A model whose step was asked in both, as a sweep or the explorer asks."""
    model = build_model(ARCHITECTURES["llama-3"].config(), attention="sdpa")
    before, buffers = dict(model.named_modules()), dict(model.named_buffers())
    for converted in (
        lambda: convert_linears(model, emulate=True),
        lambda: convert_to_transformer_engine(model, TeDevice((9, 0), 132)),
    ):
        keep_as_built(model)
        converted()
        assert dict(model.named_modules()) != before
        as_it_was_built(model)
        assert dict(model.named_modules()) == before
        assert dict(model.named_buffers()) == buffers
    as_it_was_built(model)


@pytest.mark.slow
def test_ddp_and_fsdp(capsys):
    document, ddp = planned(capsys, "--precision", "fp8-mixed")
    _, mixed = planned(capsys)
    assert document["workload"]["precision"] == "fp8-mixed"
    # A weight's fp32 copies come and go; what is kept for backward stays 16-bit.
    assert ddp["memory"]["at_peak"]["parameters"] == mixed["memory"]["at_peak"]["parameters"]
    assert ddp["memory"]["peak_allocated_bytes"] != mixed["memory"]["peak_allocated_bytes"]
    assert "--mixed_precision fp8 --fp8_backend ao" in ddp["command"]
    assert ddp["speed"]["parts"]["forward"] > 0
    _, gathered = planned(capsys, "--precision", "fp8-mixed", "--strategy", "fsdp")
    _, cast = planned(capsys, "--precision", "fp8-mixed", "--strategy", "fsdp", "--set", "fp8.all_gather=false")
    assert gathered["speed"]["parts"]["communication"] < cast["speed"]["parts"]["communication"]
    assert "--fp8_enable_fsdp_float8_all_gather true" in gathered["command"]
    assert "--fsdp_cpu_ram_efficient_loading false" in gathered["command"]
    assert "--fp8_enable_fsdp_float8_all_gather false" in cast["command"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--gpus", "2xA100", "--precision", "fp8-mixed"), "A100 (8.0) has no float8 tensor cores"),
        (("--gpus", "2xH100", "--set", "fp8.all_gather=false"), "needs --precision fp8-mixed"),
        (("--gpus", "2xH100", "--precision", "fp8-mixed", "--peft", "lora"), "--peft lora is not built yet"),
        (
            ("--gpus", "2xH100", "--precision", "fp8-mixed", "--strategy", "zero3"),
            "float8 training with this strategy is not",
        ),
    ],
)
def test_one_line(capsys, words, message):
    assert main([QWEN, *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_model_without_linear_layers(capsys):
    assert main(["openai-community/gpt2", "--gpus", "1xH100", "--precision", "fp8-mixed"]) == 2
    assert "GPT2LMHeadModel has no linear layer that torchao would convert" in capsys.readouterr().err
