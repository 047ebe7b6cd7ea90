"""Plans for CPU processes: what the search tries there, and what it plans when asked for it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gpu_plan.cli import main
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.memory.profile import measure
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.search.training.candidates import families
from gpu_plan.planner.strategy.base import Offload
from gpu_plan.planner.workload.training import Workload
from tests.support.tiny_trace import tiny_trace

SMOL, LLAMA = "HuggingFaceTB/SmolLM-135M", "meta-llama/Llama-3.1-8B"
RAM = 24 * 2**30


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def document(capsys, monkeypatch, cache):
    monkeypatch.setenv("GPU_PLAN_CACHE", str(cache))
    monkeypatch.setattr("gpu_plan.planner.hardware.ram.machine_ram_bytes", lambda: RAM)

    def run(*words):
        code = main([*words, "--seq-len", "128", "--json"])
        found = json.loads(capsys.readouterr().out)
        assert code == (0 if any(p["fits"] for p in found["plans"]) else 1)
        return found

    return run


@pytest.mark.parametrize("spec", ["cpu", "2xcpu", "4xcpu"])
def test_the_search_tries_what_accelerate_runs(spec):
    cluster = parse_cluster(spec, ram_bytes=RAM)
    tried = {(family.strategy.name, family.offload) for family in families(Workload(), cluster, True)}
    assert tried == {("single" if spec == "cpu" else "ddp", Offload.NONE)}


def test_offload_is_planned_where_it_is_asked_for():
    cluster = parse_cluster("2xcpu", ram_bytes=RAM)
    (asked,) = {f.offload for f in families(Workload(strategy="zero3", offload="all"), cluster, True)}
    assert asked is Offload.ALL
    (searched,) = {f.offload for f in families(Workload(strategy="zero3"), cluster, True)}
    assert searched is Offload.NONE


@pytest.mark.parametrize("strategy", ["fsdp", "fsdp1", "zero1", "zero2", "zero3", "hsdp"])
def test_every_strategy_asked_for_is_planned(document, strategy):
    replicas = ("--dp-replicate", "2") if strategy == "hsdp" else ()
    found = document(SMOL, "--gpus", "4xcpu", "--strategy", strategy, *replicas, "--pin")
    (plan,) = found["plans"]
    assert plan["strategy"]["name"] == strategy
    assert plan["memory"]["device_used_bytes"] == plan["memory"]["peak_allocated_bytes"]
    assert [w for w in found["warnings"] if w.startswith(f"--strategy {strategy} on CPU processes")]
    ddp = document(SMOL, "--gpus", "4xcpu", "--strategy", "ddp", "--pin")
    assert not [w for w in ddp["warnings"] if "CPU processes" in w]
    assert plan["memory"]["peak_allocated_bytes"] < ddp["plans"][0]["memory"]["peak_allocated_bytes"]


def test_what_goes_to_the_host_counts_against_its_memory(document):
    """The only memory there is: offload does not make room, and is not proposed as the nearest change."""
    fixed = document(LLAMA, "--gpus", "2xcpu", "--strategy", "fsdp", "--pin")
    (rejected,) = fixed["rejected"]
    assert "offload" not in (fixed["nearest_change"] or "")
    moved = document(LLAMA, "--gpus", "2xcpu", "--strategy", "fsdp", "--offload", "all", "--pin")
    (also,) = moved["rejected"]
    memory = also["memory"]
    assert memory["host_bytes"] > RAM
    assert memory["device_used_bytes"] == memory["peak_allocated_bytes"] + memory["host_bytes"]
    assert rejected["memory"]["device_used_bytes"] > RAM


def test_a_device_with_nothing_on_it_peaks_at_nothing():
    trace = replace(tiny_trace([(4, 4)]), inputs=())
    stream = StreamBuilder(trace, 1).build()
    empty = replace(
        stream,
        event_sign=stream.event_sign[:0],
        event_tensor=stream.event_tensor[:0],
        event_segment=stream.event_segment[:0],
        event_in_backward=np.zeros(0, dtype=np.bool_),
    )
    profile = measure(empty, 1)
    assert profile.peak_allocated_bytes == profile.at_rest_bytes == sum(profile.at_peak.values()) == 0
    assert profile.phase_of_peak is Phase.LOAD


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--offload", "all"), "--offload all moves nothing on CPU processes, whose device is the host"),
        (("--strategy", "fsdp1", "--offload", "all"), "FSDP1 trains wrongly with it on CPU processes"),
    ],
)
def test_an_offload_that_helps_nothing_or_trains_wrongly(words, said, capsys, monkeypatch, cache):
    monkeypatch.setenv("GPU_PLAN_CACHE", str(cache))
    assert main([SMOL, "--gpus", "2xcpu", *words]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
