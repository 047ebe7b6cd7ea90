"""RAM of a node: at load, in steps, at save; what is certain, and what is said of it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gpu_plan.planner.plan.document import HostFigures, PlanDocument, UncertainTerm, from_json, to_json
from gpu_plan.planner.strategy.host_memory import HostJob, host_terms, parameter_kinds, shortage
from gpu_plan.planner.strategy.known import traits_of
from gpu_plan.planner.trace.events import ParameterInfo
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.units import GIB
from gpu_plan.planner.workload.training import Peft
from gpu_plan.reports.plan.markdown import render_markdown
from gpu_plan.reports.plan.terminal import render_terminal
from gpu_plan.reports.plan.words import host_words
from tests.support.plan_example import llama_on_8xh100

P = 1000 * 40
BASE = ParameterInfo(name="a", shape=(1000, 40), dtype="float32", trainable=True, module="m")
FP32, BF16 = Regime(weights="float32"), Regime(weights="bfloat16")
AS_STORED, UNKNOWN = frozenset({"bfloat16"}), None


def job(strategy: str, **changes: Any) -> HostJob:
    base = HostJob(
        host=traits_of(strategy).host,
        parameters=(BASE,),
        regime=FP32,
        mixed=True,
        peft=Peft("none"),
        ranks=8,
        shards=8,
        stored=AS_STORED,
        step_bytes=0,
    )
    return replace(base, **changes)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (job("ddp"), (8 * 4 * P,) * 3),
        (job("ddp", stored=frozenset({"float32"})), (0, 0, 0)),
        (job("ddp", stored=UNKNOWN), (0, 8 * 4 * P, 8 * 4 * P)),
        (job("ddp", regime=BF16, mixed=False), (0, 0, 0)),
        (job("fsdp", regime=BF16), (8 * 4 * P,) * 3),
        (job("fsdp", regime=BF16, mixed=False), (0, 0, 0)),
        (job("fsdp1", regime=BF16), (0, 0, 8 * 4 * P)),
        (job("zero2", regime=BF16), (0, 0, 8 * 4 * P)),
        (job("zero3", regime=BF16), (0, 0, 8 * 4 * P)),
        (job("ddp", peft=Peft("qlora")), (0, 0, 0)),
    ],
)
def test_what_is_loaded_in_its_stored_dtype_is_a_mapped_file_and_what_is_cast_is_private(
    case: HostJob, expected: tuple[int, int, int]
) -> None:
    load, _, _ = host_terms(case)
    assert (load.low, load.expected, load.high) == expected
    assert load.source
    assert (load.basis == "source") == (load.low == load.high or case.host.loads == "partitioned")


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (job("single", ranks=1, shards=1), (4 * P, 4 * P)),
        (job("fsdp", regime=BF16, parameters=(BASE,) * 1000), (8 * (10_000_000 + 4 * P // 8), 4000 * P)),
        (job("zero2", regime=BF16), (0, 8 * 2 * P)),
        (job("zero3", regime=BF16), (0, 2 * P)),
        (job("ddp", parameters=(BASE, replace(BASE, trainable=False)), peft=Peft("lora")), (4 * P, 8 * P)),
    ],
)
def test_a_save_takes_from_its_checkpoint_up_to_the_whole_weights(case: HostJob, expected: tuple[int, int]) -> None:
    _, _, save = host_terms(case)
    assert (save.low, save.high) == expected
    assert save.expected == save.high


def test_only_what_is_certain_rules_a_plan_out() -> None:
    offloads = host_terms(job("zero3", regime=BF16, step_bytes=P))
    assert shortage(offloads, 8 * P) is None
    assert shortage(offloads, 8 * P - 1).name == "step"  # type: ignore[union-attr]
    loads = host_terms(job("ddp"))
    assert shortage(loads, 8 * 4 * P) is None
    short = shortage(loads, 8 * 4 * P - 1)
    assert short is not None
    assert (short.name, short.low) == ("load", 8 * 4 * P)
    assert shortage(host_terms(job("ddp", stored=UNKNOWN)), 4 * P) is None
    saves = host_terms(job("single", ranks=1, stored=UNKNOWN, step_bytes=P))
    assert shortage(saves, 5 * P) is None
    assert shortage(saves, 5 * P - 1).name == "save"  # type: ignore[union-attr]


def _with_host(ram: int | None) -> PlanDocument:
    document = llama_on_8xh100()
    term = UncertainTerm(name="load", bytes=60 * GIB, low_bytes=0, high_bytes=64 * GIB, basis="assumed", source="x")
    host = HostFigures(load_bytes=60 * GIB, step_bytes=0, save_bytes=0, terms=(term,))
    best = document.plans[0]
    assert best.memory is not None
    told = replace(best, memory=replace(best.memory, host=host))
    cluster = {**document.cluster, "host_ram_bytes_per_node": ram}
    return replace(document, cluster=cluster, plans=(told, *document.plans[1:]))


def test_it_is_told_where_it_matters_and_to_those_who_ask() -> None:
    line = "Host RAM: up to 64.0 GiB"
    for ram, explain, told in (
        (None, False, False),
        (None, True, True),
        (100 * GIB, False, True),
        (900 * GIB, False, False),
    ):
        document = _with_host(ram)
        for text in (
            render_terminal(document, width=120, explain=explain),
            render_markdown(document, explain=explain).replace("\\", ""),
        ):
            assert (line in text) == told, (ram, explain)
    memory = _with_host(100 * GIB).plans[0].memory
    assert memory is not None
    assert host_words(_with_host(100 * GIB), memory) == [
        "Host RAM: up to 64.0 GiB per node while loading (of 100.0 GiB)"
    ]
    offloaded = replace(memory, host_bytes=7 * GIB)
    unchecked = "not checked: what the nodes have is not known"
    assert host_words(_with_host(None), offloaded) == [f"{line} per node while loading", unchecked]


def test_plans_of_older_versions_have_none_and_stay_readable() -> None:
    document = _with_host(None)
    assert from_json(to_json(document), "a plan") == document
    older = json.loads(to_json(document))
    for plan in older["plans"]:
        plan["memory"].pop("host")
    read = from_json(json.dumps(older), "a plan").plans[0].memory
    assert read is not None
    assert read.host is None


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "fsdp1", "zero2", "zero3"])
@pytest.mark.parametrize("peft", ["none", "lora", "qlora"])
@pytest.mark.parametrize("stored", [AS_STORED, UNKNOWN, frozenset({"float32", "bfloat16"})])
def test_kinds_that_are_counted_are_asked_once(strategy: str, peft: str, stored: frozenset[str] | None) -> None:
    frozen = replace(BASE, name="b", shape=(7,), dtype="bfloat16", trainable=False)
    each = job(strategy, parameters=(BASE, BASE, frozen, BASE), peft=Peft(peft), stored=stored)
    assert host_terms(replace(each, parameters=(BASE, frozen), counts=(3, 1))) == host_terms(each)


def test_kinds_are_those_of_repeated_blocks_tied_ones_once() -> None:
    names = ("embed.weight", "layers.0.q.weight", "layers.1.q.weight", "layers.0.norm.weight", "head.weight")
    found = [replace(BASE, name=name, tied_to="embed.weight" if name == "head.weight" else "") for name in names]
    kinds, counts = parameter_kinds(ParametersAlone(found))
    assert [one.name for one in kinds] == ["embed.weight", "layers.0.q.weight", "layers.0.norm.weight"]
    assert counts == [1, 2, 1]


class ParametersAlone:
    """A trace's parameters alone."""

    def __init__(self, parameters: list[ParameterInfo]) -> None:
        self.parameters = parameters
