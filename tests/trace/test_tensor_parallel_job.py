"""`plan --tp N`: ranks that compute one copy of a model together, from words to the document."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.cli import main
from tests.accuracy.architectures import ARCHITECTURES

Plan = Callable[..., tuple[int, Any, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture
def plan(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Runs `plan` on a tiny architecture in this process; gives exit code, document or None, and stderr."""
    monkeypatch.setenv("GPU_PLAN_CACHE", str(folder / "cache"))

    def run(architecture: str, *words: str) -> tuple[int, Any, str]:
        model = folder / architecture
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text(json.dumps(ARCHITECTURES[architecture].config()))
        length = () if "--seq-len" in words else ("--seq-len", "64")
        code = main([str(model), *length, *words, "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return run


def test_a_rank_holds_its_part_and_waits_for_the_others(plan: Plan) -> None:
    whole = plan("llama-3", "--gpus", "1xH100", "--pin")[1]["plans"][0]
    code, found, _ = plan("llama-3", "--gpus", "2xH100", "--tp", "2", "--pin", "--micro-batch", "1")
    best = found["plans"][0]
    assert code == 0
    assert best["command"] == "plan --plan plan.json --execute train.py", "no option of a launcher spreads a model"
    degrees = {name: best["strategy"][name] for name in ("name", "data_parallel", "tensor_parallel", "world_size")}
    assert degrees == {"name": "tp", "data_parallel": 1, "tensor_parallel": 2, "world_size": 2}
    part, all_of_it = (found["memory"]["at_peak"]["parameters"] for found in (best, whole))
    assert all_of_it / 2 < part < all_of_it / 2 * 1.1, "norms stand whole on every rank"
    assert best["speed"]["parts"]["exposed_communication"] == 0, "so small a step waits for its host anyway"
    _, large, _ = plan("llama-3", "--gpus", "2xH100", "--tp", "2", "--pin", "--micro-batch", "8192")
    assert large["plans"][0]["speed"]["parts"]["exposed_communication"] > 0
    assert best["speed"]["samples_per_second"] == pytest.approx(1 / best["speed"]["step_seconds"])


def test_groups_share_the_parts_out_and_every_degree_within_a_node_is_tried(plan: Plan) -> None:
    code, found, _ = plan("llama-3", "--gpus", "4xH100", "--strategy", "fsdp_tp", "--global-batch", "8")
    assert code == 0
    tried = {(p["strategy"]["tensor_parallel"], p["strategy"]["data_parallel"]) for p in found["plans"]}
    assert tried == {(2, 2)}, "of four ranks in groups of four each has all of one copy: that is tp"
    assert all(p["strategy"]["global_batch_size"] == 8 for p in found["plans"])
    code, named, _ = plan("llama-3", "--gpus", "4xH100", "--strategy", "fsdp", "--tp", "2", "--global-batch", "8")
    assert named["plans"][0]["strategy"] == found["plans"][0]["strategy"]


def test_fewer_samples_than_gpus_are_shared_by_several(plan: Plan) -> None:
    code, found, _ = plan("llama-3", "--gpus", "4xH100", "--global-batch", "2", "--seq-len", "64")
    assert code == 0
    tried = [one["strategy"] for one in found["plans"]]
    assert {one["world_size"] // one["data_parallel"] for one in tried} <= {2, 4}
    assert {one["global_batch_size"] for one in tried} == {2}
    assert any("2 is less than a sample for each of 4 GPUs" in said for said in found["warnings"])
    code, nothing, err = plan("llama-3", "--gpus", "4xH100", "--global-batch", "2", "--strategy", "ddp")
    assert (code, nothing) == (2, None)
    assert err.endswith("--global-batch 2 does not divide over 4 data-parallel ranks: use 4 or 8\n")


@pytest.mark.parametrize(
    ("architecture", "words", "says"),
    [
        ("llama-3", "--gpus 8xH100 --tp 3", "--tp 3 does not divide 8 GPUs"),
        ("llama-3", "--gpus 8xH100 --tp 8", "has 4 attention heads, which 8 GPUs do not divide"),
        ("llama-3", "--gpus 4xH100 --tp 2 --strategy zero3", "zero3 splits no copy"),
        ("llama-3", "--gpus 4xH100 --tp 1 --strategy tp", "--strategy tp and --tp 1 contradict each other"),
        ("llama-3", "--gpus 2xH100 --tp 2 --peft lora", "adapters under tensor parallel are not in this version"),
        ("llama-3", "--gpus 2xH100 --tp 2 --optimizer adamw-8bit", "keeps plain tensors beside DTensors"),
        ("gpt2", "--gpus 2xH100 --tp 2", "GPT2LMHeadModel"),
        ("llama-3", "--gpus 2xH100 --tp 0", "--tp"),
        ("llama-3", "--gpus 2xH100 --ep 2 --pin", "LlamaForCausalLM has no plan for expert parallel"),
        ("mixtral", "--gpus 8xH100 --ep 8 --pin", "has 4 experts a layer, which 8 GPUs do not divide"),
        ("mixtral", "--gpus 8xH100 --ep 3", "--ep 3 does not divide 8 GPUs"),
        ("mixtral", "--gpus 8xH100 --ep 2 --dp-replicate 8", "--ep 2 does not divide 8 GPUs over 8 replicas"),
        ("mixtral", "--gpus 8xH100 --tp 4 --ep 2", "--ep 2 is no multiple of --tp 4"),
        ("mixtral", "--gpus 8xH100 --ep 2 --strategy zero3", "zero3 keeps all experts"),
        ("mixtral", "--gpus 8xH100 --ep 1 --strategy fsdp_ep", "--strategy fsdp_ep and --ep 1 contradict each other"),
        ("mixtral", "--gpus 8xH100 --ep 0", "--ep"),
        ("mixtral", "--gpus 8xH100 --ep 2 --task infer", "--ep is about training"),
    ],
)
def test_what_cannot_be_split_is_refused_in_one_line(plan: Plan, architecture: str, words: str, says: str) -> None:
    code, found, err = plan(architecture, *words.split())
    assert (code, found) == (2, None)
    assert says in err.splitlines()[-1]


def test_experts_lie_on_several_ranks_that_send_each_other_their_tokens(plan: Plan) -> None:
    code, found, _ = plan("mixtral", "--gpus", "4xH100", "--ep", "2", "--pin", "--micro-batch", "2")
    best = found["plans"][0]
    assert code == 0
    degrees = {name: best["strategy"][name] for name in ("name", "data_parallel", "expert_parallel", "world_size")}
    assert degrees == {"name": "fsdp_ep", "data_parallel": 4, "expert_parallel": 2, "world_size": 4}
    assert best["speed"]["parts"]["exposed_communication"] > 0
    assert any("ep_size=2" in said["text"] for said in found["assumptions"])
    assert any("none is dropped" in said["text"] for said in found["assumptions"])
    (alike,), crowded = best["ranks"], best["crowded"]
    assert alike["peak_allocated_bytes"] == best["memory"]["peak_allocated_bytes"]
    # Both experts that a token chooses may lie on one rank of two: twice its even share.
    assert crowded["most_times"] == 2.0
    assert crowded["peak_allocated_bytes"] > best["memory"]["peak_allocated_bytes"]
    assert crowded["step_seconds"] > best["speed"]["step_seconds"]
    named = plan("mixtral", "--gpus", "4xH100", "--ep", "2", "--strategy", "fsdp", "--pin", "--micro-batch", "2")[1]
    assert named["plans"][0]["memory"] == best["memory"]


def test_a_degree_over_nodes_is_warned_of(plan: Plan) -> None:
    found = plan("llama-2", "--gpus", "2x2xH100", "--tp", "4", "--pin")[1]
    assert any("--tp 4 spans 2 nodes of 2 GPUs" in said["text"] for said in found["assumptions"])


def test_it_is_launched_with_its_degree_in_the_file(
    plan: Plan, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, script = folder / "plan.json", folder / "train.py"
    script.write_text("loss.backward()\n")
    assert plan("llama-3", "--gpus", "2xcpu", "--tp", "2", "--pin", "--save", str(saved))[0] == 0
    assert main(["--plan", str(saved), "--execute", str(script), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "accelerate-launch --config_file" in out
    assert "parallelism_config_tp_size: 2" in out
    script.write_text("model = DistributedDataParallel(model)\nloss.backward()\n")
    assert main(["--plan", str(saved), "--execute", str(script), "--dry-run"]) == 4
    assert "is not for one that --tp spreads over the ranks" in capsys.readouterr().err


def test_torchtitan_cuts_the_sequence_and_holds_less(plan: Plan) -> None:
    words = ("llama-3", "--gpus", "4xH100", "--tp", "2", "--pin", "--optimizer", "adamw")
    code, own, _ = plan(*words, "--stack", "torchtitan")
    assert code == 0
    _, usual, _ = plan(*words, "--stack", "plain")
    mine, theirs = (found["plans"][0]["memory"]["at_peak"]["activations"] for found in (own, usual))
    assert mine < theirs
    command = own["plans"][0]["command"]
    assert "torchrun --nproc_per_node 4 -m torchtitan.train" in command
    assert "data_parallel_shard_degree 2 --parallelism.tensor_parallel_degree 2" in command
    grown = plan(*words, "--stack", "torchtitan", "--set", "alloc.expandable_segments=true")[1]["plans"][0]["command"]
    assert f"PYTORCH_ALLOC_CONF=expandable_segments:True {command}" == grown


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("llama-3", "--seq-len", "63"), "--seq-len 63 is not divided by 2 ranks"),
        (("gpt2",), "has no embed_tokens, layers, norm and lm_head"),
        (("mixtral",), "has no mlp.gate_proj of its own"),
        (("llama-3", "--gpus", "2xH100"), "torchtitan computes in fp32 where tensor parallel stands alone"),
    ],
)
def test_what_torchtitan_does_not_spread_is_one_line(plan: Plan, words: tuple[str, ...], why: str) -> None:
    model, *others = words
    gpus = () if "--gpus" in others else ("--gpus", "4xH100")
    code, _, said = plan(model, *gpus, "--tp", "2", "--pin", "--stack", "torchtitan", *others)
    assert code == 2
    assert why in said
    assert said.strip().count("\n") <= 2


def test_a_degree_across_nodes_is_warned_with_its_seconds(plan: Plan) -> None:
    code, found, _ = plan("llama-3", "--gpus", "2x1xH100", "--tp", "2", "--pin")
    assert code == 0
    (warning,) = (text for text in found["warnings"] if text.startswith("--tp 2 spans 2 nodes"))
    assert "of a step" in warning


def test_an_error_of_torch_without_words_is_told_by_its_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Inkling's cut embedding ends in an assertion of torch's that says nothing, on real ranks as well
    (torch/distributed/tensor/placement_types.py: MaskPartial._reduce_value)."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    swa = {"swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 16, "head_dim": 16}
    experts = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "intermediate_size": 128}
    kinds = {"layer_types": ["hybrid_sliding", "hybrid"], "mlp_layer_types": ["sparse"] * 2, "vocab_size": 512}
    named = {"model_type": "inkling_text", "architectures": ["InklingForCausalLM"]}
    (folder / "inkling").mkdir()
    (folder / "inkling" / "config.json").write_text(json.dumps({**named, **sizes, **swa, **experts, **kinds}))
    assert main([str(folder / "inkling"), "--gpus", "2xH100", "--tp", "2", "--pin", "--seq-len", "64", "--json"]) == 2
    said = capsys.readouterr().err
    assert "does not run so in parts: AssertionError in placement_types.py: _reduce_value: change that option" in said
