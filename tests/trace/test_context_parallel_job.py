"""`plan --cp N`: samples whose tokens several ranks share, from words to the document and the files."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpu_plan.cli import main
from gpu_plan.planner.context.split import SequenceSplit
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.search.training.notes.context import context_notes
from gpu_plan.planner.speed.in_step import exchanges_of
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.events import Kind, StepTrace
from gpu_plan.planner.trace.session import TracingSession
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.accuracy.architectures import ARCHITECTURES

Plan = Callable[..., tuple[int, Any, str]]
LAYERS, LENGTH = 2, 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture
def plan(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Runs `plan` on a tiny architecture in this process; gives exit code, document, and stderr."""
    monkeypatch.setenv("GPU_PLAN_CACHE", str(folder / "cache"))

    def run(architecture: str, *words: str) -> tuple[int, Any, str]:
        model = folder / architecture
        model.mkdir(exist_ok=True)
        config = ARCHITECTURES[architecture].config(num_hidden_layers=LAYERS)
        (model / "config.json").write_text(json.dumps(config))
        code = main([str(model), *(() if "--seq-len" in words else ("--seq-len", str(LENGTH))), *words, "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return run


@pytest.fixture(scope="module")
def session() -> TracingSession:
    config = ARCHITECTURES["llama-3"].config(num_hidden_layers=LAYERS)
    source = ModelSource(kind="config", id="x", config=config, digest="x")
    return TracingSession(source, DeviceKind(capability=(9, 0), sm_count=132), "sdpa")


def traced(session: TracingSession, split: SequenceSplit | None) -> StepTrace:
    variant = StepVariant(
        regime=Regime(weights="bfloat16"),
        checkpointing=Checkpointing.NONE,
        attention=Attention.SDPA,
        stack=Stack.ACCELERATE,
        seq_len=LENGTH,
        split=split,
    )
    return session.trace(variant, 1)


def calls(trace: StepTrace) -> Counter[str]:
    return Counter(trace.operator_names[index].partition("[")[0] for index in trace.op_name)


def flops(trace: StepTrace) -> float:
    named = [index for index, name in enumerate(trace.operator_names) if "attention" in name]
    return float(sum(trace.op_flops_per_sample[trace.op_name == index].sum() for index in named))


def peak(trace: StepTrace) -> int:
    sizes, standing, highest = trace.tensor_bytes(1), 0, 0
    for kind, subject in zip(trace.kind, trace.subject, strict=True):
        standing += int(sizes[subject]) * {Kind.ALLOC: 1, Kind.FREE: -1}.get(Kind(kind), 0)
        highest = max(highest, standing)
    return highest


@pytest.mark.parametrize("degree", [2, 4])
def test_a_ring_computes_block_after_block(session: TracingSession, degree: int) -> None:
    """As many fused operators as blocks; keys and values gathered once, their gradients passed on once a block."""
    split = SequenceSplit(degree=degree, method="ring")
    trace, whole = traced(session, split), traced(session, None)
    found = calls(trace)
    assert found["_scaled_dot_product_cudnn_attention"] == LAYERS * degree
    assert found["_scaled_dot_product_cudnn_attention_backward"] == LAYERS * degree
    assert found["all_gather_into_tensor"] == 2 * LAYERS, "forward and backward"
    assert found["all_to_all_single"] == LAYERS * degree
    assert flops(trace) == pytest.approx(flops(whole) / degree * split.attention_share)
    assert trace.tokens_per_sample == whole.tokens_per_sample == LENGTH


def test_the_rank_that_is_traced_holds_most(session: TracingSession) -> None:
    peaks = [peak(traced(session, SequenceSplit(degree=4, method="ring", rank=rank))) for rank in range(4)]
    assert peaks[0] == max(peaks)


def test_neighbours_blocks_come_one_by_one(session: TracingSession) -> None:
    found = calls(traced(session, SequenceSplit(degree=4, method="ring", rotation="alltoall")))
    assert found["all_gather_into_tensor"] == 0
    assert found["all_to_all_single"] == LAYERS * (3 + 3 + 4), "keys and values both ways, and their gradients"


def test_ulysses_gives_heads_for_tokens(session: TracingSession) -> None:
    trace, whole = traced(session, SequenceSplit(degree=2, method="ulysses")), traced(session, None)
    found = calls(trace)
    assert found["_scaled_dot_product_cudnn_attention"] == LAYERS
    assert found["alltoall_base_"] == LAYERS * 4 * 2, "query, key, value and output, forward and backward"
    assert flops(trace) == pytest.approx(flops(whole) / 2), "half of the heads, all of the tokens"


def test_one_exchange_of_a_ring_is_waited_for(session: TracingSession) -> None:
    """All others run beside a block of attention."""
    split = SequenceSplit(degree=4, method="ring")
    found = exchanges_of(traced(session, split), split, 1, across_nodes=False)
    gathered = [one for one in found if one.kind == "all_gather"]
    assert all(one.beside[1] == 1.0 and one.ranks == 4 for one in gathered)
    passed = {one.beside[1]: one.count for one in found if one.kind == "broadcast"}
    assert passed == {1.0: 3 * LAYERS, 0.0: LAYERS}
    bytes_of = {one.kind: one.bytes for one in found}
    own = LENGTH // 4 * 2 * 2 * 16  # tokens, keys and values, two heads of 16
    assert bytes_of == {"all_gather": 4 * own * 2, "broadcast": own * 4}, "bf16 whole; fp32 gradients of one rank's"


@pytest.mark.parametrize(("strategy", "words"), [("fsdp", ()), ("zero3", ("--fused-loss",))])
def test_samples_are_one_for_each_group(plan: Plan, strategy: str, words: tuple[str, ...]) -> None:
    """States stay sharded over all ranks; the batch is that of the groups."""
    job = ("--gpus", "8xH100", "--strategy", strategy, "--micro-batch", "2", "--pin", *words)
    _, alone, _ = plan("llama-3", *job)
    code, found, err = plan("llama-3", *job, "--cp", "4")
    assert code == 0, err
    best, whole = found["plans"][0], alone["plans"][0]
    chosen = best["strategy"]
    assert (chosen["name"], chosen["context_parallel"], chosen["data_parallel"]) == (strategy, 4, 2)
    assert (chosen["global_batch_size"], chosen["world_size"]) == (4, 8)
    held, before = best["memory"]["at_peak"], whole["memory"]["at_peak"]
    assert held["activations"] < before["activations"]
    assert held["optimizer_state"] == before["optimizer_state"]
    assert sum(held.values()) == best["memory"]["peak_allocated_bytes"]


@pytest.mark.parametrize(
    ("architecture", "words", "says"),
    [
        ("llama-3", "--gpus 8xH100 --cp 3", "--cp 3 does not divide 8 GPUs"),
        ("llama-3", "--gpus 4xH100 --cp 4 --seq-len 68 --strategy fsdp", "use 64 or 72"),
        ("llama-3", "--gpus 4xH100 --cp 2 --attention eager", "use sdpa"),
        ("llama-3", "--gpus 4xH100 --cp 2 --strategy fsdp --attention flash", "not sdpa"),
        ("llama-3", "--gpus 4xH100 --cp 2 --strategy ddp", "ranks of ddp compute whole samples"),
        ("llama-3", "--gpus 4xH100 --cp 2 --tp 2", "--tp 2 together with --cp 2"),
        ("llama-3", "--gpus 4xH100 --cp 2 --ep 2", "--ep 2 together with --cp 2"),
        ("llama-3", "--gpus 2xcpu --cp 2", "runs on a CPU"),
        ("llama-3", "--gpus 4xH100 --cp 2 --peft lora", "--peft lora"),
        ("llama-3", "--gpus 4xH100 --cp 2 --precision fp8-mixed", "fp8-mixed"),
        ("llama-3", "--gpus 4xH100 --cp 2 --compile", "torch.compile"),
        ("llama-3", "--gpus 4xH100 --cp 2 --set data.padding=longest", "masks are dropped"),
        ("llama-3", "--gpus 4xH100 --cp 2 --stack litgpt", "--stack litgpt"),
        ("llama-3", "--gpus 4xH100 --cp 2 --strategy zero3 --set cp.rotation=alltoall", "not zero3"),
        ("llama-3", "--gpus 4xH100 --strategy fsdp --pin --set cp.rotation=alltoall", "add --cp"),
        ("llama-3", "--gpus 2x4xH100 --cp 4 --strategy hsdp", "all share one sample"),
        ("gemma-2", "--gpus 4xH100 --cp 2 --pin", "only full causal attention is split"),
        ("bert", "--gpus 4xH100 --cp 2 --pin", "is no causal language model"),
        ("llama-3", "--gpus 2xT4 --cp 2 --pin", "no fused attention kernel"),
        ("gpt2", "--gpus 4xH100 --cp 2 --strategy zero3", "does not run on a share of its tokens"),
        ("mamba", "--gpus 4xH100 --cp 2 --pin", "carry a state along the sequence"),
    ],
)
def test_what_cannot_be_split_is_refused_in_one_line(plan: Plan, architecture: str, words: str, says: str) -> None:
    code, found, err = plan(architecture, *words.split())
    assert (code, found) == (2, None)
    assert says in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        (
            "fsdp",
            {"dp_replicate_size": 1, "dp_shard_size": 2, "tp_size": 1, "cp_size": 4, "cp_comm_strategy": "alltoall"},
        ),
        ("zero3", {"sp_size": 4, "sp_backend": "deepspeed", "sp_attn_implementation": "sdpa"}),
    ],
)
def test_the_degree_is_written_for_accelerate(
    plan: Plan, folder: Path, capsys: pytest.CaptureFixture[str], strategy: str, wanted: dict[str, object]
) -> None:
    saved, script, out = folder / f"{strategy}.json", folder / "train.py", folder / f"out-{strategy}"
    words = ("--set", "cp.rotation=alltoall") if strategy == "fsdp" else ()
    job = ("--gpus", "8xH100", "--strategy", strategy, "--pin", "--cp", "4", "--save", str(saved), "--force")
    assert plan("llama-3", *job, *words)[0] == 0
    loop = (
        "from accelerate import Accelerator\naccelerator = Accelerator()\nfor batch in accelerator.prepare(loader):\n"
    )
    script.write_text(f"{loop}    accelerator.backward(model(**batch).loss)\n")
    export = ["export", str(saved), "--to", "accelerate", "--script", str(script), "-o", str(out)]
    assert main(export) == 0
    assert ("maybe_context_parallel" in capsys.readouterr().err) is (strategy == "fsdp")
    inside = "    with accelerator.maybe_context_parallel(buffers=[batch['input_ids']], buffer_seq_dims=[1]):\n"
    script.write_text(f"{loop}{inside}        accelerator.backward(model(**batch).loss)\n")
    assert main([*export, "--force"]) == 0
    assert "maybe_context_parallel" not in capsys.readouterr().err
    (config,) = (yaml.safe_load(path.read_text()) for path in out.glob("accelerate.yaml"))
    assert config["parallelism_config"] == {f"parallelism_config_{name}": value for name, value in wanted.items()}


def test_notes_say_what_the_script_does(session: TracingSession) -> None:
    made = StepVariant(
        regime=Regime(weights="bfloat16"),
        checkpointing=Checkpointing.NONE,
        attention=Attention.SDPA,
        stack=Stack.ACCELERATE,
        seq_len=LENGTH,
        split=SequenceSplit(degree=4, method="ring"),
    )
    words = " ".join(context_notes(made, 2))
    assert "16 tokens of every sample" in words
    assert "maybe_context_parallel" in words
    assert "spans nodes of 2 GPUs" in words
