"""`plan --pp N`: a model in stages, from words to the document."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.cli import main
from tests.accuracy.architectures import ARCHITECTURES

Plan = Callable[..., tuple[int, Any, str]]
LAYERS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture
def plan(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Runs `plan` on a tiny architecture of four layers in this process; gives exit code, document, and stderr."""
    monkeypatch.setenv("GPU_PLAN_CACHE", str(folder / "cache"))

    def run(architecture: str, *words: str, form: str = "json") -> tuple[int, Any, str]:
        model = folder / architecture
        model.mkdir(exist_ok=True)
        known = ARCHITECTURES[architecture]
        layers = {"n_layer" if architecture == "gpt2" else "num_hidden_layers": LAYERS}
        (model / "config.json").write_text(json.dumps(known.config(**layers)))
        code = main([str(model), "--seq-len", "64", *words, "--format", form])
        out, err = capsys.readouterr()
        return code, (json.loads(out) if form == "json" else out) if out else None, err

    return run


ONE = ("--gpus", "2xH100", "--pp", "2", "--pin", "--micro-batch", "2")


def test_every_rank_is_told_with_what_stands_on_it(plan: Plan) -> None:
    code, found, _ = plan("llama-3", *ONE, "--grad-accum", "4")
    best = found["plans"][0]
    assert code == 0
    assert best["command"] is None, "no launcher runs a pipeline"
    strategy = best["strategy"]
    assert (strategy["name"], strategy["pipeline_parallel"], strategy["schedule"]) == ("pp", 2, "1f1b")
    assert (strategy["data_parallel"], strategy["global_batch_size"], strategy["world_size"]) == (1, 8, 2)
    first, last = best["stages"]
    assert (first["layers"], last["layers"]) == ([[0, 2]], [[2, 4]])
    assert (first["embedding"], first["head"], last["embedding"], last["head"]) == (True, False, False, True)
    assert (first["in_flight"], last["in_flight"]) == (2, 1)
    assert first["parameters"] + last["parameters"] == found["model"]["parameters"]
    peaks = [stage["peak_allocated_bytes"] for stage in best["stages"]]
    assert best["memory"]["peak_allocated_bytes"] == max(peaks)
    assert all(sum(stage["at_peak"].values()) == stage["peak_allocated_bytes"] for stage in best["stages"])
    assert 0 < best["speed"]["parts"]["bubble"] < best["speed"]["step_seconds"]


def test_a_tied_head_stands_on_both_ends(plan: Plan) -> None:
    found = plan("qwen2", *ONE, "--grad-accum", "2")[1]
    stages = found["plans"][0]["stages"]
    head = ARCHITECTURES["qwen2"].config()["vocab_size"] * ARCHITECTURES["qwen2"].config()["hidden_size"]
    assert sum(stage["parameters"] for stage in stages) == found["model"]["parameters"] + head


def test_gpipe_keeps_every_micro_batch_and_1f1b_as_many_as_stages(plan: Plan) -> None:
    def activations(*words: str) -> list[int]:
        best = plan("llama-3", *ONE, "--grad-accum", "8", *words)[1]["plans"][0]
        return [stage["at_peak"]["activations"] for stage in best["stages"]]

    once, all_of_them = activations("--schedule", "1f1b"), activations("--schedule", "gpipe")
    assert all_of_them[0] == pytest.approx(4 * once[0], rel=0.1), "eight stand instead of two"
    assert all_of_them[1] > 5 * once[1], "eight instead of one"


def test_interleaved_ranks_hold_two_stages_and_wait_less(plan: Plan) -> None:
    once = plan("llama-3", *ONE, "--grad-accum", "8")[1]["plans"][0]
    found = plan("llama-3", *ONE, "--grad-accum", "8", "--schedule", "interleaved", "--virtual-stages", "2")[1]
    best = found["plans"][0]
    assert best["strategy"]["virtual_stages"] == 2
    assert [stage["layers"] for stage in best["stages"]] == [[[0, 1], [2, 3]], [[1, 2], [3, 4]]]
    assert best["speed"]["parts"]["bubble"] < once["speed"]["parts"]["bubble"]
    assert sum(s["parameters"] for s in best["stages"]) == sum(s["parameters"] for s in once["stages"])


@pytest.mark.parametrize(("strategy", "name"), [("fsdp", "fsdp_pp"), ("ddp", "ddp_pp")])
def test_pipelines_beside_one_another_share_out_or_repeat(plan: Plan, strategy: str, name: str) -> None:
    words = ("--gpus", "4xH100", "--pp", "2", "--strategy", strategy, "--global-batch", "16", "--micro-batch", "2")
    best = plan("llama-3", *words, "--pin")[1]["plans"][0]
    alone = plan("llama-3", *ONE, "--grad-accum", "4")[1]["plans"][0]
    assert best["strategy"]["name"] == name
    assert (best["strategy"]["data_parallel"], best["strategy"]["gradient_accumulation_steps"]) == (2, 4)
    for stage, whole in zip(best["stages"], alone["stages"], strict=True):
        share = stage["at_peak"]["optimizer_state"] / whole["at_peak"]["optimizer_state"]
        assert share == pytest.approx(0.5 if strategy == "fsdp" else 1.0, rel=0.05)
        if strategy == "ddp":
            assert stage["at_peak"]["communication"] > whole["at_peak"]["communication"], "the buckets"


def test_layers_of_a_stage_are_sharded_where_they_run_and_not_where_others_pass_them_by(plan: Plan) -> None:
    """With as few micro batches as ranks the last stage has gone back before the first one does: a gradient of one
    stage that is taken to be in the other would be freed before it is there."""
    few = ("--gpus", "4xH100", "--pp", "2", "--pin", "--micro-batch", "2", "--strategy", "fsdp", "--grad-accum", "2")
    code, found, err = plan("llama-3", *few, "--schedule", "interleaved")
    assert code == 0, err
    assert [stage["layers"] for stage in found["plans"][0]["stages"]] == [[[0, 1], [2, 3]], [[1, 2], [3, 4]]]


@pytest.mark.parametrize("form", ["text", "md", "html"])
def test_reports_show_memory_by_stage_and_the_wait(plan: Plan, form: str) -> None:
    code, out, _ = plan("gpt2", *ONE, "--grad-accum", "4", "--schedule", "gpipe", form=form)
    assert code == 0
    assert "embedding, 0-1" in out
    assert "2-3, head" in out
    assert "of the step for one another" in " ".join(out.split())


def test_few_micro_batches_are_warned_of_with_their_bubble(plan: Plan) -> None:
    found = plan("llama-3", *ONE, "--grad-accum", "1", "--schedule", "gpipe")[1]
    assert any("1 micro batch does not fill 2 stages: ranks wait 5" in words for words in found["warnings"])


def test_layers_are_balanced_where_the_head_takes_long_and_even_where_that_is_pinned(plan: Plan) -> None:
    words = ("--gpus", "2xH100", "--pp", "2", "--micro-batch", "64", "--grad-accum", "8", "--checkpointing", "none")
    searched = plan("llama-3", *words)[1]["plans"]
    given = plan("llama-3", *words, "--set", "pipeline.split=balanced")[1]["plans"][0]
    pinned = plan("llama-3", *words, "--pin")[1]["plans"]
    assert len(pinned) == 1
    assert [stage["layers"] for stage in pinned[0]["stages"]] == [[[0, 2]], [[2, 4]]]
    assert given["stages"][0]["layers"][0][1] >= 2, "the stage with the head has no more than the other"
    assert searched[0]["speed"]["step_seconds"] <= pinned[0]["speed"]["step_seconds"]


def test_without_a_number_of_micro_batches_there_are_four_for_each_stage(plan: Plan) -> None:
    found = plan("llama-3", *ONE)[1]
    assert found["plans"][0]["strategy"]["gradient_accumulation_steps"] == 8


@pytest.mark.parametrize(
    ("architecture", "words", "says"),
    [
        ("llama-3", "--gpus 8xH100 --pp 3", "--pp 3 does not divide 8 GPUs"),
        ("llama-3", "--gpus 8xH100 --pp 8", "has 4 layers, fewer than the 8 stages of --pp 8"),
        ("llama-3", "--gpus 4xH100 --pp 4 --grad-accum 2", "as many micro batches as stages: 2 of 4"),
        ("llama-3", "--gpus 2xH100 --pp 2 --schedule dualpipe", "--schedule 'dualpipe' is unknown"),
        ("llama-3", "--gpus 3xH100 --pp 3 --vpp 1 --schedule interleaved", "--vpp 2 or more"),
        ("llama-3", "--gpus 2xH100 --pp 2 --vpp 3 --schedule interleaved", "fewer than the 6 stages"),
        ("llama-3", "--gpus 2xH100 --pp 2 --vpp 2 --schedule gpipe", "need --schedule interleaved"),
        ("llama-3", "--gpus 3xH100 --pp 3 --schedule interleaved --vpp 1", "needs several stages on each rank"),
        ("llama-3", "--gpus 2xH100 --schedule 1f1b", "--schedule 1f1b is about a pipeline: add --pp"),
        ("llama-3", "--gpus 2xH100 --vpp 2", "--vpp 2 is about a pipeline: add --pp"),
        ("llama-3", "--gpus 4xH100 --pp 2 --strategy zero3", "zero3 has no stages"),
        ("llama-3", "--gpus 4xH100 --pp 4 --strategy fsdp", "--pp 4 takes all 4 GPUs"),
        ("llama-3", "--gpus 4xH100 --pp 2 --strategy pp", "is one pipeline over all 4 GPUs"),
        ("llama-3", "--gpus 4xH100 --pp 1 --strategy fsdp_pp", "contradict each other"),
        ("llama-3", "--gpus 4xH100 --pp 2 --ep 2", "--ep 2 together with --pp 2"),
        ("gpt2", "--gpus 4xH100 --pp 2 --tp 2 --grad-accum 4", "has no plan for tensor parallel"),
        ("llama-3", "--gpus 4xH100 --pp 2 --schedule zero-bubble --strategy ddp", "DDP would never reduce"),
        ("llama-3", "--gpus 2xH100 --pp 2 --peft lora", "adapters in a pipeline are not in this version"),
        ("llama-3", "--gpus 2xH100 --pp 2 --stack trl", "--stack trl"),
        ("llama-3", "--gpus 2xH100 --pp 0", "--pp '0' is not a positive integer"),
        ("bert", "--gpus 2xT4 --pp 2", "no plain list of layers"),
        ("pythia", "--gpus 2xT4 --pp 2", "GPTNeoXForCausalLM"),
        ("llama-3", "--gpus 4xH100 --pp 2 --cp 2", "--pp 2 together with --cp 2"),
    ],
)
def test_what_cannot_be_piped_is_refused_in_one_line(plan: Plan, architecture: str, words: str, says: str) -> None:
    code, found, err = plan(architecture, *words.split())
    assert (code, found) == (2, None)
    assert says in err.splitlines()[-1]


def test_a_plan_in_stages_is_exported(plan: Plan, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything that ranks need of this package goes along, how a class is cut too."""
    saved, script, out = folder / "plan.json", folder / "train.py", folder / "out"
    script.write_text("loss = model(**batch).loss\nloss.backward()\n")
    cpu = ("--gpus", "2xcpu", "--pp", "2", "--pin", "--save", str(saved), "--force")
    assert plan("llama-3", *cpu)[0] == 0
    assert main(["export", str(saved), "--to", "torchrun", "-o", str(out)]) == 0
    capsys.readouterr()
    names = {path.stem for path in out.glob("*.py")}
    assert {"start_rank", "piped_model", "stage_classes"} <= names
    for path in out.glob("*.py"):
        text = path.read_text()
        assert "from gpu_plan" not in text, path.name
        beside = [line.split()[1] for line in text.splitlines() if line.startswith(("from piped_", "from stage_"))]
        assert set(beside) <= names, path.name
    assert main(["export", str(saved), "--to", "accelerate", "-o", str(folder / "other")]) == 2
    assert "accelerate launch runs no pipeline; use --to torchrun" in capsys.readouterr().err


def test_ranks_that_compute_a_stage_together_hold_a_part_of_it(plan: Plan) -> None:
    words = ("--pp", "2", "--pin", "--micro-batch", "2", "--grad-accum", "4")
    code, whole, _ = plan("llama-3", "--gpus", "2xH100", *words)
    shared_code, shared, _ = plan("llama-3", "--gpus", "4xH100", "--tp", "2", *words)
    sharded_code, sharded, _ = plan("llama-3", "--gpus", "8xH100", "--tp", "2", "--strategy", "fsdp", *words)
    assert (code, shared_code, sharded_code) == (0, 0, 0)
    names = [found["plans"][0]["strategy"]["name"] for found in (whole, shared, sharded)]
    assert names == ["pp", "tp_pp", "fsdp_tp_pp"]
    each = [[stage["parameters"] for stage in found["plans"][0]["stages"]] for found in (whole, shared, sharded)]
    assert all(one / 2 < part < one * 0.6 for one, part in zip(each[0], each[1], strict=True)), "norms stay whole"
    assert each[1] == each[2], "told whole, as a stage's rank computes it"
    words = ("--pp", "2", "--pin", "--micro-batch", "8192", "--grad-accum", "4")
    large = (
        plan("llama-3", "--gpus", gpus, *more, *words)[1] for gpus, *more in (("2xH100",), ("4xH100", "--tp", "2"))
    )
    alone, together = (found["plans"][0]["speed"]["parts"]["exposed_communication"] for found in large)
    assert together > alone, "where the devices are slower than their hosts"


def test_a_backward_in_halves_keeps_what_the_weights_gradients_need(plan: Plan) -> None:
    words = ("--gpus", "2xH100", "--pp", "2", "--vpp", "2", "--pin", "--micro-batch", "2", "--grad-accum", "4")
    last = {}
    for schedule in ("interleaved", "zero-bubble"):
        code, document, _ = plan("llama-3", *words, "--schedule", schedule)
        assert code == 0
        best = document["plans"][0]
        assert best["speed"]["parts"]["bubble"] > 0
        last[schedule] = best["stages"][-1]["peak_allocated_bytes"]
    assert last["zero-bubble"] > last["interleaved"]
