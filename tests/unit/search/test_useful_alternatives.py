"""Which alternatives are told beside a plan that fits: those that gain something, what gains most first."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.job.alternatives import tried
from gpu_plan.planner.job.alternatives.useful import Gain, in_order, most_useful
from gpu_plan.planner.job.alternatives.ways import Way
from gpu_plan.planner.plan.document import Alternative
from gpu_plan.planner.units import GIB
from tests.unit.search.test_ranking import judged

ONE = parse_cluster("8xH100")
BEST = judged("FSDP2", (0.1,), used=12)


def gain(
    change: str, *, rate: float = 10.0, used: int = 12, cluster: Any = ONE, best: Any = BEST, host: int = 0
) -> Gain:
    alternative = Alternative(
        change=change,
        plan="FSDP2",
        cluster=cluster.spec,
        device_used_bytes=used * GIB,
        capacity_bytes=16 * GIB,
        host_bytes_per_node=host,
        samples_per_second=rate,
    )
    return Gain(alternative=alternative, cluster=cluster, best=best, beside=ONE)


def names(*gains: Gain) -> list[str]:
    return [one.change for one in most_useful(gains, 3)]


def test_what_gains_most_goes_first_and_what_gains_nothing_is_left_out() -> None:
    found = names(gain("slower", rate=9.0), gain("faster", rate=12.0), gain("smaller", used=4), gain("the same"))
    assert found == ["smaller", "faster"]


def test_half_of_the_devices_at_the_same_cost_is_an_answer_but_a_dearer_card_is_none() -> None:
    half = replace(ONE, gpus_per_node=4)
    dearer = parse_cluster("8xB200")
    assert gain("8xB200", rate=11.0, cluster=dearer).cheaper == pytest.approx(11 / 10 * 2.19 / 3.75 - 1, abs=0.4)
    assert names(gain("4xH100", rate=4.9, cluster=half), gain("8xB200", rate=11.0, cluster=dearer)) == ["4xH100"]


def test_what_does_without_the_nodes_ram_goes_before_all() -> None:
    offloading = judged("ZeRO-3", (0.1,), used=12, parts=104, host=40)
    found = names(
        gain("faster", rate=20.0, best=offloading, host=40 * GIB), gain("--peft lora", rate=10.1, best=offloading)
    )
    assert found == ["--peft lora", "faster"]


def test_three_are_told_at_most_and_the_order_is_not_that_of_finding() -> None:
    gains = [gain(f"c{number}", rate=11.0 + number) for number in range(5)]
    assert names(*gains) == names(*reversed(gains)) == ["c4", "c3", "c2"]


def test_where_nothing_fits_what_keeps_nothing_in_the_nodes_ram_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two ways whoever goes further than one that is enough is not asked about."""
    lora, fused = Way(options={"peft": "lora"}), Way(options={"fused-loss": "true"})
    host = {fused.words: 40 * GIB, lora.words: 0, "--seq-len 2048": 8 * GIB, "larger": 0}
    asked: list[str] = []

    def changes(job: Any, fits: bool) -> Any:
        asked_of = lambda words: lambda: asked.append(words) or words  # noqa: E731
        for way in (fused, fused.and_(Way(options={"seq-len": "512"})), lora, lora.and_(fused)):
            yield way, way.words, asked_of(way.words)
        yield None, "--seq-len 2048", asked_of("--seq-len 2048")
        yield None, "--seq-len 1024", asked_of("--seq-len 1024")

    def alternative(change: str, task: Any, best: Any, cluster: Any, *, way: Any = None) -> Alternative:
        return replace(gain(change).alternative, host_bytes_per_node=host[change])

    monkeypatch.setattr(tried, "_changes", changes)
    monkeypatch.setattr(tried, "at_its_batch", lambda task: task)
    monkeypatch.setattr(tried, "alternative_of", alternative)
    monkeypatch.setattr(tried, "more_devices", lambda cluster: iter(()))
    monkeypatch.setattr(tried, "larger_devices", lambda job: iter([("larger", ONE)]))
    job: Any = SimpleNamespace(
        captures=False, request=SimpleNamespace(words=()), cluster=ONE, task=SimpleNamespace(on=lambda one: one)
    )
    found = tried.alternatives(job, fits=False)
    assert [one.change for one in found.found] == ["--peft lora", "--fused-loss", "--seq-len 2048", "larger"]
    assert asked == ["--fused-loss", "--peft lora", "--seq-len 2048"]


def test_where_all_is_asked_for_what_gains_nothing_stands_behind() -> None:
    found = in_order([gain("slower", rate=9.0), gain("faster", rate=12.0), gain("smaller", used=4)])
    assert [one.change for one in found] == ["smaller", "faster", "slower"]
