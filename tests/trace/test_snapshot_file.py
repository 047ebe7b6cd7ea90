"""`--snapshot` end to end: the file agrees with the plan it belongs to, and torch's own tools read it."""

import json

import pytest
from torch.cuda import _memory_viz

from gpu_plan.cli import main
from tests.support.snapshot_viewer import check, read, unknown_opcodes

MODEL = ("EleutherAI/pythia-70m", "--seq-len", "128")
PINNED = (*MODEL, "--pin")


@pytest.fixture
def plan(capsys, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path_factory.getbasetemp() / "kept-for-snapshots"))

    def run(*words, model=PINNED):
        code = main([*model, *words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.mark.parametrize(("strategy", "expandable"), [("ddp", False), ("fsdp", False), ("fsdp", True)])
def test_the_snapshot_is_the_plans_own_run(plan, tmp_path, strategy, expandable):
    path = tmp_path / "run.pickle"
    setting = ("--set", f"alloc.expandable_segments={str(expandable).lower()}")
    words = ("--gpus", "2xA100-40GB", "--strategy", strategy, "--micro-batch", "4", "--json", *setting)
    code, kept, _ = plan(*words)
    assert code == 0
    code, out, _ = plan(*words, "--snapshot", str(path))
    assert code == 0
    before, after = json.loads(kept), json.loads(out)
    assert before["plans"] == after["plans"]
    memory = after["plans"][0]["memory"]
    content = path.read_bytes()
    assert unknown_opcodes(content) == set()
    made = read(content)
    device = check(made)
    assert device.peak_reserved == memory["peak_reserved_bytes"]
    assert device.peak_requested <= memory["peak_allocated_bytes"]
    assert device.peak_requested > 0.98 * memory["peak_allocated_bytes"]
    assert sum(row["allocated_size"] for row in made["segments"]) == memory["at_rest_bytes"]
    assert {row["is_expandable"] for row in made["segments"]} == {expandable}
    frames = {frame["filename"] for event in made["device_traces"][0] for frame in event["frames"]}
    assert {"gpt_neox.layers.0.mlp.dense_h_to_4h", "gpt_neox.layers.5.attention"} <= frames
    code, _, err = plan(*words, "--snapshot", str(path))
    assert code == 2
    assert "--force" in err


def test_torch_reads_it(plan, tmp_path):
    path = tmp_path / "run.pickle"
    assert plan("--gpus", "1xT4", "--micro-batch", "2", "--snapshot", str(path))[0] == 0
    made = read(path.read_bytes())
    said = _memory_viz.segsum(made)  # asserts that its sums agree
    assert f"segments: {len(made['segments'])}" in said
    history = _memory_viz.trace(made)
    assert f"{len(made['device_traces'][0])} entries" in history
    assert history.count("cudaMalloc") == sum(e["action"] == "segment_alloc" for e in made["device_traces"][0])
    for flames in (_memory_viz.memory, _memory_viz.segments):
        lines = flames(made, lambda text: text).splitlines()
        assert any("category:0:optimizer_state" in line for line in lines)
        total = sum(int(line.rsplit(" ", 1)[1]) for line in lines)
        assert total == sum(row["total_size"] for row in made["segments"])
    assert "add_local_files" in _memory_viz.trace_plot(made)
    assert "add_local_files" in _memory_viz.segment_plot(made)


def test_a_pinned_run_that_dies_is_shown_up_to_its_end(plan, tmp_path, plans_alone):
    path = tmp_path / "dies.pickle"
    code, _, _ = plan("--gpus", "1xT4", "--strategy", "single", "--micro-batch", "512", "--snapshot", str(path))
    assert code == 1
    made = read(path.read_bytes())
    check(made)
    assert made["device_traces"][0][-1]["action"] == "oom"
    assert "OutOfMemoryError" in _memory_viz.trace(made)


def test_a_search_that_finds_nothing_writes_nothing_and_says_so(plan, tmp_path, plans_alone):
    path = tmp_path / "none.pickle"
    words = ("--gpus", "1xT4", "--strategy", "single", "--checkpointing", "none", "--micro-batch", "512")
    code, _, err = plan(*words, "--snapshot", str(path), model=MODEL)
    assert code == 1
    assert f"{path} was not written" in err
    assert not path.exists()


def test_a_cpu_has_no_caching_allocator(plan, tmp_path):
    code, _, err = plan("--gpus", "cpu", "--snapshot", str(tmp_path / "none.pickle"))
    assert code == 2
    assert err.count("\n") == 1
    assert "CPU" in err
    assert not (tmp_path / "none.pickle").exists()
