"""Device maps of real models: what transformers and accelerate really choose, what they accept, and what runs."""

import json
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import dispatch_model
from accelerate.utils import CustomDtype
from accelerate.utils.modeling import (
    check_device_map,
    compute_module_sizes,
    get_balanced_memory,
    infer_auto_device_map,
)
from torch import nn
from transformers import AutoModelForCausalLM, Gemma2Config, GPT2Config, LlamaConfig
from transformers.models.minimax_m3_vl.configuration_minimax_m3_vl import MiniMaxM3VLTextConfig

from benchmarks.told import device_maps as benchmark
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.catalog_index import load_index
from gpu_plan.planner.search.device_map import (
    Placement,
    Problem,
    accelerate_map,
    evaluate,
    modules_of,
    problem_of,
    solve,
)
from gpu_plan.planner.search.device_map.devices import devices_of
from gpu_plan.planner.search.device_map.problem import DeviceName
from gpu_plan.planner.units import GIB
from tests.support.sample import sample

SAMPLE = ("google/gemma-2-2b", "meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-V3", "openai-community/gpt2-xl")


def catalog_model(model_id: str) -> nn.Module:
    values = json.loads(load_index()[model_id].path.read_text(encoding="utf-8"))
    return build_model(values, dtype=torch.bfloat16)


def four_bit(model: nn.Module) -> dict[str, CustomDtype]:
    """What a 4-bit quantiser shrinks: linear weights but for the head."""
    linear = (name for name, module in model.named_modules() if isinstance(module, nn.Linear))
    return {f"{name}.weight": CustomDtype.INT4 for name in linear if name != "lm_head"}


def theirs_and_ours(
    model: Any, budget: Mapping[DeviceName, int], *, quantised: bool = False, state: Mapping[str, int] | None = None
) -> tuple[Placement, Placement]:
    """accelerate's balanced map and ours, on one problem."""
    special = four_bit(model) if quantised else {}
    classes = list(model._no_split_modules)
    balanced = get_balanced_memory(model, dict(budget), no_split_module_classes=classes, special_dtypes=special)
    chosen = infer_auto_device_map(model, balanced, no_split_module_classes=classes, special_dtypes=special)
    modules = modules_of(model, size_of=lambda name, tensor: tensor.numel() // 2 if name in special else tensor.nbytes)
    problem = problem_of(modules, devices_of({**budget, "disk": None}), no_split=classes, state_bytes=state)
    return evaluate(problem, chosen), solve(problem, limit_seconds=240)


def test_transformers_34751_one_gpu_takes_all() -> None:
    """The embedding is larger than every GPU's balanced share, so all of gemma-2-27b lands on the last of eight."""
    model = catalog_model("google/gemma-2-27b")
    budget: dict[DeviceName, int] = {index: 23 * 10**9 for index in range(8)}
    cache = {f"model.layers.{index}": 2 * 16 * 128 * 2 * 8192 * 4 for index in range(46)}  # 8192 tokens, batch 4
    theirs, ours = theirs_and_ours(model, budget, quantised=True, state=cache)
    assert set(theirs.device_map.values()) == {7}
    assert not theirs.valid
    assert ours.valid
    assert ours.optimal
    assert ours.cost.offloaded_bytes == 0


@pytest.mark.parametrize("gib", sample([1.2, 2.0, 4.0], kept=[2.0]))
def test_transformers_47211_collapse_then_spill(gib: float) -> None:
    """Llama-3-8B in four bits: head and embedding stay in 16, no GPU but the last has room for one, the rest spills."""
    model = catalog_model("meta-llama/Meta-Llama-3-8B")
    budget: dict[DeviceName, int] = {**{index: int(gib * GIB) for index in range(8)}, "cpu": 64 * GIB}
    theirs, ours = theirs_and_ours(model, budget, quantised=True)
    assert set(theirs.device_map.values()) == {7, "cpu"}
    assert theirs.cost.offloaded_bytes > 10**9
    assert ours.valid
    assert ours.optimal
    assert ours.cost.offloaded_bytes == 0


@pytest.mark.parametrize("gib", [125, 140])
def test_transformers_46823_small_first_layers_mislead(gib: int) -> None:
    """MiniMax-M3's first layers are dense and small: the share per GPU is sized by them, and experts spill to CPU."""
    config = MiniMaxM3VLTextConfig(mlp_layer_types=["dense"] * 3 + ["sparse"] * 57)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    budget: dict[DeviceName, int] = {**{index: gib * GIB for index in range(8)}, "cpu": 2000 * GIB}
    theirs, ours = theirs_and_ours(model, budget)
    assert theirs.cost.offloaded_bytes > 10**9
    assert 8 * gib > 1.25 * 794  # the GPUs have more than enough together
    assert ours.valid
    assert ours.optimal
    assert ours.cost.offloaded_bytes == 0


def committed_rows() -> dict[tuple[str, str], dict[str, Any]]:
    document = json.loads((benchmark.RESULTS / "device_maps.json").read_text(encoding="utf-8"))
    return {(row["model"], row["budget"]): row for row in document["rows"]}


@pytest.mark.parametrize("model_id", sample(SAMPLE, kept=SAMPLE[:2]))
def test_benchmark_table_is_what_runs(model_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The committed table, recomputed for a sample: our figures and theirs."""
    monkeypatch.setattr(benchmark, "LIMIT_SECONDS", 240.0)  # whatever else this machine does
    rows = committed_rows()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = benchmark.run(load_index()[model_id])
    assert len(found) == len(benchmark.BUDGETS)
    for row in found:
        committed = rows[row.model, row.budget]
        assert row.ours.optimal
        assert row.ours.key[:3] == committed["ours"]["key"][:3]
        for name, figures in row.theirs.items():
            for goal in ("offloaded_bytes", "disk_bytes", "boundaries", "valid"):
                assert getattr(figures, goal) == committed["theirs"][name][goal], (row.budget, name, goal)
        for name in benchmark.THEIRS:
            assert row.outcome(name)[0] in ("win", "tie")


def test_committed_table_has_no_loss_and_every_decoder() -> None:
    rows = committed_rows()
    assert {model for model, _ in rows} == {entry.id for entry in benchmark.decoders()}
    figures = {
        key: benchmark.Row(
            **{
                **row,
                "ours": benchmark.Figures(**row["ours"]),
                "theirs": {name: benchmark.Figures(**values) for name, values in row["theirs"].items()},
            }
        )
        for key, row in rows.items()
    }
    outcomes = Counter(row.outcome(name)[0] for row in figures.values() for name in benchmark.THEIRS)
    assert outcomes["loss"] == 0
    assert outcomes["win"] > outcomes["tie"]
    summary = (benchmark.RESULTS / "device_maps.md").read_text(encoding="utf-8")
    for name in benchmark.THEIRS:
        count = Counter(row.outcome(name)[0] for row in figures.values())
        assert f"| {name} | {len(rows)} | {count['win']} | {count['tie']} | {count['loss']} |" in summary


@pytest.mark.parametrize("model_id", ["google/gemma-2-2b", "Qwen/Qwen2.5-VL-7B-Instruct", "openai-community/gpt2-xl"])
def test_units_weigh_what_accelerate_counts(model_id: str) -> None:
    model = catalog_model(model_id)
    sizes = compute_module_sizes(model)
    problem = problem_of(modules_of(model), devices_of({"cpu": None}), no_split=model._no_split_modules)
    seen: set[str] = set()
    for unit in problem.units:
        shared = sum(tie.num_bytes for tie in unit.ties if tie.group in seen)
        seen |= {tie.group for tie in unit.ties}
        assert unit.weight_bytes + unit.buffer_bytes - shared == sizes.get(unit.name, 0), unit.name
    assert problem.weight_bytes + sum(unit.buffer_bytes for unit in problem.units) == sizes[""]


def tiny(name: str) -> Any:
    """Real models of a few hundred kilobytes: plain, tied with 256-token windows, and one with fused projections."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4}
    configs: dict[str, Any] = {
        "llama": LlamaConfig(**sizes, intermediate_size=64, num_key_value_heads=2),
        "gemma2, tied": Gemma2Config(**sizes, intermediate_size=64, num_key_value_heads=2, head_dim=8),
        "gpt2, tied": GPT2Config(vocab_size=128, n_embd=32, n_layer=4, n_head=4, n_positions=64),
    }
    return AutoModelForCausalLM.from_config(configs[name], dtype=torch.float32).eval()


def tiny_problem(model: Any, shares: Mapping[DeviceName, float]) -> Problem:
    modules = modules_of(model)
    weights = problem_of(modules, devices_of({"cpu": None}), no_split=model._no_split_modules).weight_bytes
    budget = {name: int(share * weights) for name, share in shares.items()}
    return problem_of(modules, devices_of({**budget, "disk": None}), no_split=model._no_split_modules)


@pytest.mark.parametrize("name", ["llama", "gemma2, tied", "gpt2, tied"])
def test_dispatched_model_gives_the_same_outputs(name: str, tmp_path: Path) -> None:
    """Our map over CPU and disk, really dispatched: the same logits and generated tokens, bit for bit."""
    model = tiny(name)
    tokens = torch.arange(12).reshape(1, 12) % 128
    with torch.inference_mode():
        expected = model(tokens).logits
        generated = model.generate(tokens, max_new_tokens=4, do_sample=False)
    placement = solve(tiny_problem(model, {"cpu": 0.75}))
    assert set(placement.device_map.values()) == {"cpu", "disk"}
    device_map = accelerate_map(placement)
    check_device_map(model, device_map)
    dispatched = dispatch_model(model, device_map, offload_dir=tmp_path)
    off = {name for name, parameter in dispatched.named_parameters() if parameter.device.type == "meta"}
    assert off
    with torch.inference_mode():
        assert torch.equal(dispatched(tokens).logits, expected)
        assert torch.equal(dispatched.generate(tokens, max_new_tokens=4, do_sample=False), generated)


@pytest.mark.parametrize("name", ["llama", "gemma2, tied", "gpt2, tied"])
def test_two_gpu_maps_are_accepted(name: str) -> None:
    """No key that accelerate does not know, no parameter without a device, tied weights together."""
    model = tiny(name)
    placement = solve(tiny_problem(model, {0: 0.5, 1: 0.3, "cpu": 1.0}))
    device_map = accelerate_map(placement)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_device_map(model, device_map)
    assert {0, 1} <= set(device_map.values())
    if "tied" in name:
        assert device_map["lm_head"] == device_map.get("model.embed_tokens", device_map.get("transformer.wte"))
