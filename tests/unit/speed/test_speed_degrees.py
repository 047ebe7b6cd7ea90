"""What each degree of a step sends and is waited for, by hand; and how the reports say it."""

from dataclasses import replace

import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.plan.document import DegreeFigures
from gpu_plan.reports.plan.added.degree_words import degree_lines, degree_rows
from tests.support.plan_example import llama_on_8xh100
from tests.support.synthetic_trace import Op, trace_of
from tests.unit.speed.test_speed_roofline import reduce, step

CLUSTER = parse_cluster("2x4xH100")
COMPUTED = trace_of(Op(flops=1e14), Op(flops=2e14, phase=1))


def test_each_degree_is_counted_apart_and_repeated_as_often_as_it_sends():
    waited = reduce(overlap=False, bytes=10**8, count=3, ranks=4, axis="tensor", per="micro_step", phase="forward")
    beside = reduce(overlap=True, bytes=10**6, ranks=2)
    copied = reduce(overlap=False, kind="device_to_host", bytes=10**7)
    time = step(COMPUTED, CLUSTER, collectives=(waited, beside, copied), accumulation_steps=5, data_parallel=2)
    assert time.degrees is not None
    tensor, data, host = time.degrees()
    assert (tensor.axis, tensor.ranks, tensor.calls, tensor.bytes) == ("tensor", 4, 15, 15 * 10**8)
    assert (data.axis, data.ranks, data.calls) == ("data", 2, 1)
    assert (host.axis, host.ranks) == ("host", None)
    assert tensor.exposed_seconds == pytest.approx(tensor.seconds)  # what follows reads what it puts out
    assert data.exposed_seconds < data.seconds
    assert tensor.seconds + data.seconds == pytest.approx(time.communication_seconds)
    assert host.seconds == pytest.approx(time.host_transfer_seconds)
    without = step(COMPUTED, CLUSTER, collectives=(beside, copied), accumulation_steps=5, data_parallel=2)
    assert time.step_seconds - without.step_seconds == pytest.approx(tensor.exposed_seconds)
    assert time.scaling is not None
    assert str(time.scaling()).startswith("2 groups of 4 GPUs do the work of")


def test_one_device_sends_nothing():
    time = step(COMPUTED)
    assert time.degrees is not None
    assert time.degrees() == ()


def test_a_degree_in_words():
    shown = llama_on_8xh100().plans[0]
    assert shown.speed is not None
    assert shown.memory is not None
    one = DegreeFigures(
        axis="tensor", ranks=4, calls=1200, sent_bytes=2**31, seconds=0.2,
        exposed_seconds=shown.speed.step_seconds / 4, without="FSDP2, micro batch 1",
        without_device_used_bytes=2**34, without_samples_per_second=shown.speed.samples_per_second * 2,
    )  # fmt: skip
    told = replace(shown, speed=replace(shown.speed, degrees=(one, replace(one, axis="data", without=None))))
    first, second = degree_rows(told)
    assert first[:3] == ("tensor parallel 4", "2.0 GiB", "1,200")
    assert first[4].endswith("(25% of the step, with what it holds up)")
    assert first[5] == "FSDP2, micro batch 1, 16.0 GiB, 2.00 times the speed"
    assert second[5] == ""
    assert "Without it: FSDP2, micro batch 1" in degree_lines(told)[0]
    assert degree_rows(replace(shown, speed=None)) == []
