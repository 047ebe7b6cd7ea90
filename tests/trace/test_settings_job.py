"""`--set` of the device and its allocator, in whole plans; and a GPU of the user's own."""

import json
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.units import GIB

NET = "examples.factory:small_net"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(ROOT)


def planned(capsys, *words, gpus="2x4090", model=NET):
    """The pinned configuration's document."""
    main([model, "--gpus", gpus, "--pin", "--json", *words])
    return json.loads(capsys.readouterr().out)


def only(document):
    return (document["plans"] + document["rejected"])[0]


@pytest.mark.slow
def test_what_is_kept_for_others_is_no_capacity(capsys):
    before = planned(capsys)
    after = planned(capsys, "--set", "memory.reserve=3GiB")
    capacity = only(before)["memory"]["capacity_bytes"]
    assert only(after)["memory"]["capacity_bytes"] == capacity - 3 * GIB
    assert after["workload"]["settings"] == {"memory.reserve": str(3 * GIB)}
    assert any("kept free for others" in note["text"] for note in after["assumptions"])
    assert only(after)["memory"]["peak_reserved_bytes"] == only(before)["memory"]["peak_reserved_bytes"]
    memory = only(before)["memory"]
    outside = sum(term["high_bytes"] for term in memory["uncertain"] if term["name"] != "cached blocks")
    used = memory["peak_reserved_bytes"] + outside
    tight = planned(capsys, "--set", f"memory.reserve={capacity - used + 1}")
    assert (only(before)["verdict"], only(tight)["verdict"]) == ("fits", "tight")
    assert tight["nearest_change"].startswith("without --set memory.reserve it would fit: DDP")


def test_all_of_the_memory_cannot_be_reserved(capsys):
    assert main(["openai-community/gpt2", "--gpus", "1x4090", "--set", "memory.reserve=24GiB"]) == 2
    assert "memory.reserve leaves nothing" in capsys.readouterr().err


def test_the_allocator_s_settings_reach_the_simulation_and_the_command(capsys):
    before = only(planned(capsys))["memory"]
    rounded = only(planned(capsys, "--set", "alloc.roundup_power2_divisions=1", "--set", "alloc.max_split_size_mb=20"))
    assert rounded["command"].startswith("PYTORCH_ALLOC_CONF=max_split_size_mb:20,roundup_power2_divisions:1 ")
    wide = only(planned(capsys, "--set", "alloc.roundup_power2_divisions=2"))["memory"]
    assert wide["peak_allocated_bytes"] > before["peak_allocated_bytes"]
    fixed, growing = (
        only(planned(capsys, "--seq-len", "128", *words, model="openai-community/gpt2"))["memory"]
        for words in ((), ("--set", "alloc.expandable_segments=true"))
    )
    assert growing["peak_reserved_bytes"] < fixed["peak_reserved_bytes"]


@pytest.mark.slow
def test_a_cpu_has_no_such_allocator(capsys):
    assert main([NET, "--gpus", "cpu", "--set", "alloc.expandable_segments=true"]) == 2
    assert "which a CPU does not have" in capsys.readouterr().err


def test_a_gpu_of_the_users_is_planned_for_anew_when_it_changes(capsys, monkeypatch, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(ROOT))
    figures = []
    for context in ("300 MiB", "500 MiB"):
        (folder / "plan.toml").write_text(f"[gpus.mine]\nmemory = '20 GiB'\ncontext = '{context}'\n")
        figures.append(only(planned(capsys, gpus="2xmine"))["memory"])
    assert [memory["capacity_bytes"] for memory in figures] == [20 * GIB] * 2
    first, second = (memory["outside_allocator"]["cuda_context"] for memory in figures)
    assert second - first == 200 * 2**20
