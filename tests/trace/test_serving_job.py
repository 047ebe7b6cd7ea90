"""`plan MODEL --task infer --server vllm` as a user types it, on tiny models and shipped configs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.build.text_config import text_config
from gpu_plan.planner.model.quantization import parse_quantize
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.plan.document import from_json
from gpu_plan.planner.serving.layers import heads
from gpu_plan.planner.serving.weights import rank_weights
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.generation.provider import GenerationProvider
from gpu_plan.planner.units import GIB, MIB
from tests.accuracy.architectures import ARCHITECTURES

SERVE = ("--task", "infer", "--server", "vllm")
SGLANG = ("--task", "infer", "--server", "sglang")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for name in ("llama-3", "t5", "bert"):
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(ARCHITECTURES[name].config()))
    return root


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def planned(capsys: pytest.CaptureFixture[str], *words: str, serve: tuple[str, ...] = SERVE) -> dict[str, Any]:
    code = main([*words, *serve, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == (0 if any(plan["fits"] for plan in document["plans"]) else 1)
    return document


def test_a_server_in_json_and_words(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (str(models / "llama-3"), "--gpus", "1xT4", "--context", "300", "--concurrency", "40")
    document = planned(capsys, *words)
    figures, memory = document["plans"][0]["serving"], document["plans"][0]["memory"]
    assert document["workload"]["server"] == "vllm"
    assert document["workload"]["basis"]["utilization"] == "default"
    # Two layers, two key-value heads of 16, keys and values in two bytes, blocks of 16 tokens.
    assert figures["block_bytes"] == 2 * 2 * 2 * 16 * 2 * 16
    assert figures["blocks"] == figures["available_bytes"] // figures["block_bytes"]
    assert figures["max_concurrency"] == figures["blocks"] / 19
    spent = ("weight_bytes", "buffer_bytes", "activation_bytes", "graph_bytes", "outside_bytes", "available_bytes")
    assert sum(figures[name] for name in spent) == figures["requested_bytes"]
    assert sum(memory["at_peak"].values()) == memory["peak_allocated_bytes"]
    assert document["plans"][0]["command"].startswith("vllm serve ")
    assert from_json(json.dumps(document), "here").plans[0].serving is not None
    for form in ("text", "md", "html", "csv"):
        assert main([*words, *SERVE, "--format", form, "--explain"]) == 0
        assert "vLLM" in capsys.readouterr().out or form == "csv"


def test_sglang_in_json_and_words(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (str(models / "llama-3"), "--gpus", "1xT4", "--context", "300", "--concurrency", "40")
    document = planned(capsys, *words, serve=SGLANG)
    figures, memory = document["plans"][0]["serving"], document["plans"][0]["memory"]
    assert document["workload"]["server"] == "sglang"
    assert document["workload"]["utilization"] is None
    # Two layers, two key-value heads of 16, keys and values in two bytes.
    assert figures["block_bytes"] == 2 * 2 * 2 * 16 * 2
    assert figures["weight_bytes"] + figures["available_bytes"] == figures["requested_bytes"]
    assert figures["max_sequences"] == 4096
    assert figures["max_batched_tokens"] == 2048
    # The table of requests: a number for every token of every one, and of one more.
    assert figures["buffer_bytes"] == 4097 * 300 * 4 + 384 * MIB
    assert sum(memory["at_peak"].values()) == memory["peak_allocated_bytes"]
    assert document["plans"][0]["command"].startswith("python -m sglang.launch_server --model-path ")
    assert main([*words, *SGLANG, "--gpu-memory-utilization", "0.5"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "for weights and cache (a share of 0.5)" in shown
    assert "--mem-fraction-static 0.5" in shown


def test_a_share_that_leaves_sglang_nothing_beside_its_pool(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (str(models / "llama-3"), "--gpus", "1xT4", "--context", "300")
    document = planned(capsys, *words, "--gpu-memory-utilization", "1.0", serve=SGLANG)
    assert "lower the share" in document["rejected"][0]["reason"]


def test_what_is_asked_is_shared_by_replicas(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = planned(capsys, str(models / "llama-3"), "--gpus", "2xT4", "--context", "300", "--concurrency", "7")
    ways = {(p["strategy"]["name"], p["strategy"]["tensor_parallel"]): p["serving"] for p in document["plans"]}
    assert {("replicas", 1), ("tp", 2)} <= set(ways)
    assert ways["replicas", 1]["replicas"] == 2
    assert ways["tp", 2]["block_bytes"] * 2 == ways["replicas", 1]["block_bytes"]


def test_a_share_that_leaves_nothing_says_so(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = planned(capsys, str(models / "llama-3"), "--gpus", "1xT4", "--gpu-memory-utilization", "0.0001")
    assert document["plans"] == []
    assert "nothing is left for its cache" in document["rejected"][0]["reason"]


def test_more_than_it_holds_names_what_it_holds(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (str(models / "llama-3"), "--gpus", "1xT4", "--context", "512", "--concurrency", "2000000")
    document = planned(capsys, *words, "--max-num-seqs", "8")
    assert "the rest would wait" in document["rejected"][0]["reason"]
    assert document["nearest_change"] is not None


@pytest.mark.parametrize(
    ("model", "words", "said"),
    [
        ("llama-3", ("--server", "tgi", "--task", "infer"), "--server 'tgi' is unknown: use vllm, sglang"),
        ("llama-3", ("--server", "vllm"), "--server is about inference: add --task infer"),
        ("llama-3", ("--task", "infer", "--concurrency", "4"), "--concurrency is about a server: add --server vllm"),
        ("llama-3", (*SERVE, "--gpu-memory-utilization", "90"), "0.9 is 90 %"),
        ("llama-3", (*SERVE, "--gpu-memory-utilization", "nan"), "no share above 0"),
        ("llama-3", (*SERVE, "--concurrency", "0"), "not a positive integer"),
        ("llama-3", (*SERVE, "--batch", "3"), "use --concurrency"),
        ("llama-3", (*SERVE, "--vllm-tp", "3"), "--vllm-tp 3 does not divide 2 GPUs"),
        ("llama-3", (*SERVE, "--tp", "2", "--vllm-tp", "1"), "contradict each other"),
        ("llama-3", (*SERVE, "--set", "lora.dropout=0.1"), "says nothing about --server vllm"),
        ("llama-3", (*SERVE, "--snapshot", "here.pickle"), "a server's memory is computed"),
        ("llama-3", (*SERVE, "--context", "4k"), "longer than the 512 positions"),
        ("t5", SERVE, "encoder-decoder"),
        ("bert", SERVE, "generates no text"),
        ("t5", SGLANG, "encoder-decoder"),
        ("llama-3", (*SGLANG, "--set", "lora.dropout=0.1"), "says nothing about --server sglang"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    models: Path, capsys: pytest.CaptureFixture[str], model: str, words: tuple[str, ...], said: str
) -> None:
    assert main([str(models / model), "--gpus", "2xT4", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


@pytest.mark.parametrize(
    ("model", "ranks", "quantize", "logged", "near"),
    [
        ("meta-llama/Llama-3.1-8B", 1, None, 14.9889, 0.0002),
        ("meta-llama/Llama-3.1-8B", 2, None, 7.51, 0.006),
        pytest.param("Qwen/Qwen3-30B-A3B", 4, None, 14.2474, 0.003, marks=pytest.mark.slow),
        pytest.param("meta-llama/Llama-3.1-70B", 1, "fp8", 67.7229, 0.01, marks=pytest.mark.slow),
    ],
)
def test_weights_as_vllm_logged_them(model: str, ranks: int, quantize: str | None, logged: float, near: float) -> None:
    """Sources: benchmarks/data/vllm_logged.toml."""
    source = resolve(model, trust_remote_code=False, revision=None)
    assert source.config is not None
    config = text_config(source.config)
    provider = GenerationProvider(
        source=source,
        device=device_kind(parse_cluster("1xH100").gpu),
        attention="sdpa",
        dtype="bfloat16",
        scheme=None if quantize is None else parse_quantize(quantize),
    )
    spec = replace(provider.spec(), parameters=(*provider.spec().parameters, *provider.packed()))
    assert rank_weights(spec, config, heads(config), ranks, 2).nbytes / GIB == pytest.approx(logged, abs=near)


def test_a_server_ends_where_others_hold_what_it_would_take(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (str(models / "llama-3"), "--gpus", "1xT4", "--context", "300", "--set", "memory.reserve=8GiB")
    refused = planned(capsys, *words)
    assert refused["plans"] == []
    assert "--gpu-memory-utilization below 0.45 asks for less" in refused["rejected"][0]["reason"]
    assert planned(capsys, *words, "--gpu-memory-utilization", "0.4")["plans"][0]["fits"]
