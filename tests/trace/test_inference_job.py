"""`plan MODEL --task infer` as a user types it, on tiny models."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.plan.document import from_json, to_json
from gpu_plan.planner.plan.saved import saved_from_json
from tests.accuracy.architectures import ARCHITECTURES

BLOCK = 512


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with configs of tiny models."""
    root = tmp_path_factory.mktemp("models")
    for name in ("llama-3", "gpt2", "bert", "t5"):
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(ARCHITECTURES[name].config()))
    return root


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = main([*words, "--json"])
    out = capsys.readouterr().out
    document: dict[str, Any] = json.loads(out)
    assert code == (0 if any(plan["fits"] for plan in document["plans"]) else 1)
    return document


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("plan: error: ")
    assert said.err.count("\n") == 1
    return said.err


def test_a_generation_at_full_context(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (str(models / "llama-3"), "--task", "infer", "--gpus", "1xT4", "--context", "300", "--batch", "4")
    document = planned(capsys, *words, "--new-tokens", "20", "--precision", "fp16")
    workload, plan = document["workload"], document["plans"][0]
    assert (workload["task"], workload["context"], workload["batch"], workload["new_tokens"]) == ("infer", 300, 4, 20)
    assert workload["basis"]["context"] == "given"
    assert workload["basis"]["quantize"] == "default"
    figures, memory = plan["inference"], plan["memory"]
    # Two layers, two key-value heads of 16, keys and values in two bytes.
    assert figures["kv_cache_bytes"] == 2 * 2 * 2 * 16 * 300 * 4 * 2
    assert figures["prompt_tokens"] == 280
    assert sum(memory["at_peak"].values()) == memory["peak_allocated_bytes"]
    assert memory["phase_peaks"]["prefill"] == figures["prefill_peak_bytes"] == memory["peak_allocated_bytes"]
    assert figures["load_peak_bytes"] < figures["decode_peak_bytes"] < figures["prefill_peak_bytes"]
    assert figures["max_context"] == 512
    assert figures["limits"]["max_context"] == "positions"
    assert figures["max_batch"] >= 4
    assert 0 < figures["decode_seconds"] < figures["prefill_seconds"]
    assert from_json(json.dumps(document), "here").plans[0].inference is not None


def test_the_longest_context_fits_and_one_step_more_does_not(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a device with little room; found by traces, and checked by two more."""
    words = (str(models / "llama-3"), "--task", "infer", "--gpus", "1xT4", "--precision", "fp32", "--pin")
    words = (*words, "--set", "memory.reserve=14.28GiB", "--batch", "64")
    figures = planned(capsys, *words, "--context", "64")["plans"][0]["inference"]
    longest = figures["max_context"]
    assert figures["limits"]["max_context"] == "memory"
    assert longest % 64 == 0
    assert planned(capsys, *words, "--context", str(longest))["plans"][0]["fits"]
    beyond = planned(capsys, *words, "--context", str(longest + 64))
    assert not any(plan["fits"] for plan in beyond["plans"])
    assert beyond["nearest_change"].startswith("without --set memory.reserve it would fit")


def test_torchao_weights_are_split(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (str(models / "llama-3"), "--task", "infer", "--gpus", "2xT4", "--context", "128", "--quantize")
    document = planned(capsys, *words, "torchao-int8")
    plans = {plan["strategy"]["name"]: plan["inference"]["weight_bytes"] for plan in document["plans"]}
    assert plans["replicas"] // 2 < plans["tp"] < plans["replicas"]
    packed = planned(capsys, *words, "nf4")
    assert "tp" not in {plan["strategy"]["name"] for plan in packed["plans"]}
    assert main([*words, "nf4", "--tp", "2"]) == 2
    assert "transformers does not split nf4 weights" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("strategy", ["pp", "device-map"])
def test_a_prompt_in_pieces_on_two_devices(strategy: str, models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (str(models / "llama-3"), "--task", "infer", "--gpus", "2xT4", "--context", "400", "--strategy", strategy)
    whole = planned(capsys, *words)["plans"][0]["inference"]
    pieces = planned(capsys, *words, "--set", "prefill.chunk=64")["plans"][0]["inference"]
    assert pieces["prefill_peak_bytes"] < whole["prefill_peak_bytes"]
    assert pieces["kv_cache_bytes"] == whole["kv_cache_bytes"]


def test_replicas_stages_and_tensor_parallel_share_a_node(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = planned(capsys, str(models / "llama-3"), "--task", "infer", "--gpus", "2xT4", "--context", "128")
    plans = {plan["strategy"]["name"]: plan for plan in document["plans"]}
    assert set(plans) == {"replicas", "tp", "pp", "device-map"}
    assert plans["replicas"]["strategy"]["data_parallel"] == 2
    whole = plans["replicas"]["inference"]
    for name in ("tp", "pp"):
        assert plans[name]["inference"]["kv_cache_bytes"] == whole["kv_cache_bytes"] // 2
        assert plans[name]["inference"]["weight_bytes"] < whole["weight_bytes"]
    # Norms are on both ranks; each stage has the rotary frequencies.
    assert plans["tp"]["inference"]["weight_bytes"] > whole["weight_bytes"] // 2
    assert sum(entry["weight_bytes"] for entry in plans["pp"]["placement"]["devices"]) > whole["weight_bytes"]
    stages = plans["pp"]["placement"]["device_map"]
    assert stages["model.layers.0"] == "cuda:0"
    assert stages["model.layers.1"] == stages["lm_head"] == "cuda:1"
    assert plans["device-map"]["placement"]["device_map"]


def test_a_plan_is_kept_and_saved(models: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = (str(models / "gpt2"), "--task", "infer", "--gpus", "1xT4", "--context", "64", "--pin")
    first = planned(capsys, *words)
    assert planned(capsys, *words) == first
    assert main([*words, "--save", str(tmp_path / "plan.json")]) == 0
    saved = saved_from_json((tmp_path / "plan.json").read_bytes(), "plan.json")
    assert saved.workload["task"] == "infer"
    assert saved.plan.inference is not None
    text = capsys.readouterr().out
    assert "context 64 = 63 prompt + 1 new token" in text
    assert "KV cache" in text
    assert to_json(from_json(json.dumps(first), "first"))


@pytest.mark.slow
def test_a_class_that_takes_no_quantised_cache_has_another_nearest_change(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("openai/gpt-oss-20b", "--task", "infer", "--gpus", "1x4090", "--context", "8192", "--batch", "1")
    document = planned(capsys, *words)
    assert document["plans"] == []
    changes = [one["change"] for one in document["alternatives"]]
    assert changes[0] == "--set cache.implementation=static --set prefill.chunk=2048"
    assert document["nearest_change"] == f"{changes[0]} would fit: single GPU"
    assert "--context 4544" in changes
    assert not any("--kv-dtype" in change for change in changes)


@pytest.mark.slow
def test_pieces_are_as_large_as_fit(capsys: pytest.CaptureFixture[str]) -> None:
    """Scores of 2,048 tokens and 32,768 keys for 64 heads take 8 GiB a time in 16 bits."""
    words = ("openai/gpt-oss-20b", "--task", "infer", "--gpus", "1x4090", "--context", "32768", "--batch", "1")
    changes = [one["change"] for one in planned(capsys, *words)["alternatives"]]
    assert changes[0] == "--set cache.implementation=static --set prefill.chunk=512"


@pytest.mark.slow
def test_an_encoder_decoder(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (str(models / "t5"), "--task", "infer", "--gpus", "1xT4", "--context", "100", "--new-tokens", "10", "--pin")
    figures = planned(capsys, *words, "--precision", "fp32")["plans"][0]["inference"]
    # Two layers of four heads of 16, fp32: cross attention over the prompt, self attention over what is generated.
    per_token = 2 * 2 * 4 * 16 * 4
    assert per_token * 90 < figures["kv_cache_bytes"] <= per_token * 101


def test_a_prompt_in_pieces(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a pass over the prompt makes shrinks, what stands behind it is the same, seconds are of all pieces."""
    words = (str(models / "llama-3"), "--task", "infer", "--gpus", "1xT4", "--context", "512", "--pin")
    whole = planned(capsys, *words)["plans"][0]["inference"]
    pieces = planned(capsys, *words, "--set", "prefill.chunk=64")["plans"][0]["inference"]
    assert pieces["prefill_peak_bytes"] < whole["prefill_peak_bytes"]
    same = ("load_peak_bytes", "kv_cache_bytes", "weight_bytes")
    assert [pieces[name] for name in same] == [whole[name] for name in same]
    assert pieces["prefill_seconds"] > whole["prefill_seconds"]
    assert pieces["prefill_tokens_per_second"] == pytest.approx(511 / pieces["prefill_seconds"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--context", "513"), "513 is longer than the 512 positions"),
        (("--context", "64", "--new-tokens", "64"), "leaves no prompt"),
        (("--context", "64", "--kv-dtype", "q4"), "--kv-dtype 'q4' is unknown"),
        (("--kv-dtype", "int4"), "--kv-dtype int4 is not built yet"),
        (("--optimizer", "adamw"), "--optimizer is about training"),
        (("--seq-len", "64"), "use --context"),
        (("--micro-batch", "2"), "use --batch"),
        (("--strategy", "zero3"), "zero3 is about training"),
        (("--strategy", "pipelines"), "unknown for --task infer"),
        (("--strategy", "tp", "--tp", "1"), "contradict"),
        (("--strategy", "single", "--tp", "2"), "contradict"),
        (("--tp", "3"), "does not divide"),
        (("--precision", "bf16-mixed"), "about training"),
        (("--precision", "fp7"), "unknown"),
        (("--quantize", "int3"), "unknown"),
        (("--offload", "optimizer"), "none or all"),
        (("--batch", "0"), "not a positive integer"),
        (("--set", "fsdp.reshard_after_forward=true"), "about training"),
        (("--set", "cache.implementation=static", "--kv-dtype", "fp8"), "contradict"),
        (("--context", "512", "--batch", "20000"), "tokens of a batch"),
        (("--context", "400", "--set", "prefill.chunk=400"), "says nothing of a prompt of 399 tokens"),
        (("--set", "prefill.chunk=8"), "prefill.chunk"),
    ],
)
def test_what_makes_no_sense(
    models: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert said in refused(capsys, str(models / "llama-3"), "--task", "infer", "--gpus", "2xT4", *words)


def test_inference_options_without_the_task(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "add --task infer" in refused(capsys, str(models / "llama-3"), "--gpus", "1xT4", "--context", "64")


def test_a_model_that_generates_nothing(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, str(models / "bert"), "--task", "infer", "--gpus", "1xT4", "--context", "64")
    assert "generates no text" in said


@pytest.mark.parametrize("quantize", ["nf4", "fp8"])
def test_stages_of_weights_in_another_type_are_no_plan(
    models: Path, capsys: pytest.CaptureFixture[str], quantize: str
) -> None:
    """transformers' pipeline receives hidden states in the type of a stage's first parameter."""
    words = (str(models / "llama-3"), "--task", "infer", "--gpus", "2xL4", "--context", "128", "--quantize", quantize)
    document = planned(capsys, *words)
    assert "pp" not in {plan["strategy"]["name"] for plan in document["plans"]}
    assert main([*words, "--strategy", "pp"]) == 2
    assert "cannot be cut into stages" in capsys.readouterr().err


@pytest.mark.slow
def test_beside_weights_copied_in_each_step_fewer_bits_are_evaluated(capsys, tmp_path):
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4} | dict(
        hidden_size=2048, intermediate_size=8192, num_attention_heads=16, num_key_value_heads=8, vocab_size=1024
    )
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = (str(tmp_path), "--task", "infer", "--gpus", "1xT4", "--context", "256", "--set", "memory.reserve=14250MiB")
    document = planned(capsys, *words)
    assert document["plans"][0]["strategy"]["offload"] != "none"
    assert "--quantize nf4" in [other["change"] for other in document["alternatives"]]


@pytest.mark.slow
def test_beside_weights_copied_in_each_step_a_server_in_fewer_bits_is_the_first_line(capsys):
    document = planned(capsys, "Qwen/Qwen3-8B", "--task", "infer", "--gpus", "1xT4", "--context", "4096")
    assert document["plans"][0]["strategy"]["offload"] != "none"
    served, alone = document["alternatives"]
    assert served["change"] == "--server vllm --quantize awq-4bit-128", "a T4 multiplies no FP8"
    assert alone["change"] == "--quantize nf4"
    assert document["headline"].startswith(f"{served['change']} keeps nothing in the node's RAM: single GPU, at most ")
