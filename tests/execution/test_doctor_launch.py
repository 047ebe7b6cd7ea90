"""`plan doctor --launch` with real processes: right launches pass, wrong ones are found, nothing is left behind."""

import json
import tempfile
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.commands.doctor.small_plan import small_plan
from gpu_plan.executor.doctor.trial.run import trial

BREAK = """
import torch.distributed as dist
_right = dist.all_reduce
def wrong(tensor, *args, **kwargs):
    work = _right(tensor, *args, **kwargs)
    if tensor.is_floating_point():
        tensor += 1
    return work
dist.all_reduce = wrong
"""
"""A broken all-reduce, put into each rank before its script."""


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def left_behind():
    """Temporary folders of trials, and processes that still run one."""
    folders = list(Path(tempfile.gettempdir()).glob("plan-doctor-*"))
    running = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"doctor/trial/script.py" in words:
                running.append(int(entry.name))
    return folders, running


@pytest.mark.slow
def test_a_right_launch_passes_and_is_timed(capsys):
    before = left_behind()
    code = main(["doctor", "--launch", "--gpus", "2xcpu", "--strategy", "ddp", "--precision", "fp32", "--json"])
    launch = json.loads(capsys.readouterr().out)["launch"]
    assert code == 0
    assert (launch["ranks"], launch["world_size"], launch["backend"]) == (2, 2, "gloo")
    assert launch["wrapped"].endswith("DistributedDataParallel")
    assert len(launch["passed"]) == 13
    assert launch["untried"] == []
    assert {speed["collective"] for speed in launch["speeds"]} >= {"all_reduce", "all_gather", "broadcast"}
    assert all(speed["bytes_per_second"] > 0 for speed in launch["speeds"])
    assert left_behind() == before


@pytest.mark.slow
def test_two_processes_that_never_met_are_an_error():
    """Accelerate's trap on a CPU: without this variable both ranks end well, each alone."""
    found = trial(small_plan("2xcpu", "ddp", "fp32"), environment={"ACCELERATE_USE_CPU": "false"})
    assert "launch-world" in {finding.id for finding in found.findings if finding.severity == "error"}
    assert any("independently" in finding.what for finding in found.findings)


@pytest.mark.slow
def test_a_wrong_collective_is_an_error(tmp_path):
    (tmp_path / "usercustomize.py").write_text(BREAK)
    (tmp_path / "sitecustomize.py").write_text(BREAK)
    found = trial(small_plan("2xcpu", "ddp", "fp32"), environment={"PYTHONPATH": str(tmp_path)})
    wrong = " ".join(finding.what for finding in found.findings if finding.id == "launch-wrong")
    assert "reduce (sum)" in wrong
    assert "gather:" not in wrong, "what works is not accused"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "precision"),
    [
        ("fsdp", "fp32"),
        ("fsdp", "bf16-mixed"),
        ("fsdp1", "fp32"),
        ("zero1", "fp32"),
        ("zero2", "bf16-mixed"),
        ("zero3", "fp32"),
        ("ddp", "fp16-mixed"),
    ],
)
def test_every_strategy_passes_under_its_own_launch(strategy, precision):
    found = trial(small_plan("2xcpu", strategy, precision))
    assert [finding.what for finding in found.findings] == []
    assert "a training step equals that of one process" in found.passed
    assert found.ranks == 2
