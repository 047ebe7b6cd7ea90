"""--fused-loss and --set kernels.liger in whole plans: what they spare, and that folding and strategies hold."""

import json

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.trace.kernels.liger.loss import chunk_rows
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.accuracy.cases import Case, _batch, _built
from tests.support.replay_cpu import replayed

QWEN = "Qwen/Qwen2-0.5B"
VOCABULARY, TOKENS = 151936, 1024


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))


def planned(capsys, *words, gpus="2xH100"):
    main([QWEN, "--gpus", gpus, "--pin", "--seq-len", str(TOKENS), "--json", *words])
    document = json.loads(capsys.readouterr().out)
    return document, (document["plans"] + document["rejected"])[0]


def test_logits_never_stand(capsys):
    _, plain = planned(capsys)
    document, fused = planned(capsys, "--fused-loss", "--explain")
    _, liger = planned(capsys, "--set", "kernels.liger=true")
    logits = VOCABULARY * TOKENS
    spared = plain["memory"]["peak_allocated_bytes"] - fused["memory"]["peak_allocated_bytes"]
    assert spared > 6 * logits
    assert liger["memory"]["peak_allocated_bytes"] < fused["memory"]["peak_allocated_bytes"]
    assert not [line for line in fused["explain"] if line["shape"] == [TOKENS, VOCABULARY]]
    assert document["workload"]["fused_loss"] is True
    assert any("_apply_liger_kernel_to_instance" in note["text"] for note in document["assumptions"])


@pytest.mark.parametrize("strategy", ["fsdp", "zero3"])
def test_sharded_strategies_take_the_head_s_weight_whole(capsys, strategy):
    peaks = [planned(capsys, "--strategy", strategy, *words)[1]["memory"] for words in ((), ("--fused-loss",))]
    assert peaks[1]["peak_allocated_bytes"] < peaks[0]["peak_allocated_bytes"]


def test_the_trainer_s_own_flags_are_in_the_command(capsys):
    _, plan = planned(capsys, "--stack", "trainer", "--set", "kernels.liger=true")
    assert "--use_liger_kernel" in plan["command"]


def test_a_model_without_them_is_one_line(capsys):
    assert main(["openai-community/gpt2", "--gpus", "1xH100", "--fused-loss"]) == 2
    assert "has no kernels for GPT2LMHeadModel" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tokens", "width", "vocabulary", "rows"),
    [(16384, 4096, 32000, 2048), (8, 64, 512, 1), (48, 64, 40, 48), (1024, 896, 151936, 8)],
)
def test_rows_of_logits_at_once(tokens, width, vocabulary, rows):
    assert chunk_rows(tokens, width, vocabulary) == rows


@pytest.mark.parametrize("checkpointing", [Checkpointing.NONE, Checkpointing.FULL])
def test_folded_equals_full(checkpointing):
    model = _built(Case(architecture="llama-3", changes={"num_hidden_layers": 7}))
    variant = StepVariant(
        regime=Regime(weights="float32", autocast="bfloat16"),
        checkpointing=checkpointing,
        attention=Attention.SDPA,
        stack=Stack.PLAIN,
        seq_len=64,
        fused=("layers", "loss"),
    )
    figures = [
        replayed(
            Tracer(model=model, make_batch=_batch, profile=CudaProfile(), has_sequence=True, fold=fold).trace(
                variant, 2
            ),
            2,
        )
        for fold in (True, False)
    ]
    assert figures[0] == figures[1]
