"""Plans with adapters, end to end: counts, model states under every strategy, what 4 bits save."""

import json

import pytest

from gpu_plan.cli import main

SMOL = "HuggingFaceTB/SmolLM-135M"
SHORT = ("--seq-len", "128", "--pin", "--micro-batch", "2")
LAYERS, HIDDEN, KEYS = 30, 576, 192
TRAINED = LAYERS * 16 * ((HIDDEN + HIDDEN) + (HIDDEN + KEYS))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def plan(capsys, monkeypatch, cache):
    """Runs `plan ... --json`; gives the document and its only evaluated candidate."""
    monkeypatch.setenv("GPU_PLAN_CACHE", str(cache))

    def run(*words):
        main([SMOL, *SHORT, *words, "--json"])
        found = json.loads(capsys.readouterr().out)
        (only,) = [*found["plans"], *found["rejected"]]
        return found, only

    return run


def test_counts_and_echo(plan):
    found, _ = plan("--gpus", "1xA100", "--peft", "lora")
    full, _ = plan("--gpus", "1xA100")
    assert found["model"]["trainable_parameters"] == TRAINED
    assert found["model"]["parameters"] == full["model"]["parameters"] + TRAINED
    workload = found["workload"]
    assert (workload["peft"], workload["lora_rank"], workload["lora_targets"]) == ("lora", 16, ["q_proj", "v_proj"])
    assert workload["basis"]["peft"] == "given"


def test_frozen_weights_stand_in_16_bits_and_adapters_in_32(plan):
    found, only = plan("--gpus", "1xA100", "--peft", "lora")
    frozen = found["model"]["parameters"] - TRAINED
    states = 2 * frozen + 4 * TRAINED
    assert states <= only["memory"]["at_peak"]["parameters"] < states + 512 * 400


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "zero2"])
def test_replicas_keep_the_base_whole(plan, strategy):
    found, only = plan("--gpus", "4xA100", "--strategy", strategy, "--peft", "lora")
    frozen = 2 * (found["model"]["parameters"] - TRAINED)
    assert frozen < only["memory"]["at_peak"]["parameters"] < frozen + 8 * TRAINED


@pytest.mark.parametrize("strategy", ["fsdp", "zero3"])
def test_shards_divide_the_base(plan, strategy):
    found, only = plan("--gpus", "4xA100", "--strategy", strategy, "--peft", "lora")
    frozen = 2 * (found["model"]["parameters"] - TRAINED) // 4
    assert frozen < only["memory"]["at_peak"]["parameters"] < (frozen + 3 * TRAINED) * 1.05


def test_flash_attention_over_packed_weights_computes_in_16_bits(plan):
    """fp32 norms make fp32 queries, which no packed weight's type says how to cast."""
    words = ("--strategy", "fsdp1", "--peft", "qlora", "--precision", "bf16", "--stack", "trainer")
    _, flash = plan("--gpus", "4xA100", *words, "--attention", "flash")
    _, sdpa = plan("--gpus", "4xA100", *words)
    assert flash["memory"]["at_peak"]["parameters"] == sdpa["memory"]["at_peak"]["parameters"]


def test_four_bits_save_what_they_say(plan):
    _, lora = plan("--gpus", "1xA100", "--peft", "lora")
    _, single = plan("--gpus", "1xA100", "--peft", "qlora")
    _, double = plan("--gpus", "1xA100", "--peft", "qlora", "--set", "quant.double=true")
    linear = LAYERS * (2 * HIDDEN * HIDDEN + 2 * HIDDEN * KEYS + 3 * HIDDEN * 1536)
    embedding = 49152 * HIDDEN
    saved = lora["memory"]["at_peak"]["parameters"] - single["memory"]["at_peak"]["parameters"]
    assert saved == pytest.approx(1.5 * linear - 2 * embedding, rel=0.01)
    scales = single["memory"]["at_peak"]["buffers"] - double["memory"]["at_peak"]["buffers"]
    blocks = linear // 64
    small = 210 * 1536
    assert scales == pytest.approx(4 * blocks - (blocks + 4 * blocks / 256) - small, rel=0.05)


def test_frozen_base_has_neither_gradients_nor_state(plan):
    _, only = plan("--gpus", "1xA100", "--peft", "lora", "--lora-targets", "all-linear")
    peak = only["memory"]["at_peak"]
    assert peak["gradients"] + peak["optimizer_state"] < 0.2 * peak["parameters"]
