"""What a report begins with where its first plan keeps something in the node's RAM: of plans that are made up."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from gpu_plan.planner.job.alternatives.found import Beside
from gpu_plan.planner.job.alternatives.headline import first_line
from gpu_plan.planner.plan.document import Alternative
from gpu_plan.planner.units import GIB
from tests.unit.search.test_ranking import judged

OFFLOADED = judged("offloaded", (2.0,), host=3, parts=105)
TASK: Any = SimpleNamespace(
    speed=lambda best: SimpleNamespace(tokens_per_second_per_gpu=100.0),
    evaluator=SimpleNamespace(cluster=SimpleNamespace(world_size=2)),
)
FUSED = Alternative(
    change="--fused-loss",
    plan="DDP, micro batch 2",
    cluster="2xT4",
    device_used_bytes=GIB,
    capacity_bytes=16 * GIB,
    host_bytes_per_node=0,
    samples_per_second=1.0,
    tokens_per_second=300.0,
)


def test_what_surely_does_without_is_told_by_tokens() -> None:
    assert first_line(Beside(same_without_host=FUSED), [OFFLOADED], TASK) == (
        "--fused-loss trains the same without the node's RAM: DDP, micro batch 2, 1.50 times the speed"
    )
    served = replace(FUSED, change="--server vllm --quantize awq-4bit-128", tokens_per_second=None)
    assert first_line(Beside(without_host=served), [OFFLOADED], TASK) == (
        "--server vllm --quantize awq-4bit-128 keeps nothing in the node's RAM: DDP, micro batch 2, 2.00 times the"
        " speed"
    )


def test_what_may_fit_is_worth_a_try_where_it_is_much_faster() -> None:
    lean = judged("FSDP2", (1.25,), used=15)
    found = Beside(may_do_without=("--optimizer adamw-fused", lean))
    assert first_line(found, [OFFLOADED], TASK) == (
        "--optimizer adamw-fused: FSDP2 does without the node's RAM at 1.60 times the speed, but may not fit the"
        " device: worth a try before the plan below"
    )
    surely = replace(found, same_without_host=FUSED)
    assert (first_line(surely, [OFFLOADED], TASK) or "").startswith("--fused-loss"), "what surely fits goes before it"
    assert first_line(Beside(), [OFFLOADED, judged("slow", (9.0,))], TASK) is None


def test_a_servers_speed_is_told_as_the_most_that_it_can_be() -> None:
    served = replace(FUSED, change="--server vllm", at_most=True)
    assert first_line(Beside(without_host=served), [OFFLOADED], TASK) == (
        "--server vllm keeps nothing in the node's RAM: DDP, micro batch 2, at most 1.50 times the speed"
    )
