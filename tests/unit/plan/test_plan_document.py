"""The plan document: its arithmetic, its JSON, and what it refuses."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.hardware.cluster import cluster_document, parse_cluster
from gpu_plan.planner.plan.document import (
    CATEGORY_NAMES,
    Assumption,
    AtPeak,
    Candidate,
    HostFigures,
    MemoryFigures,
    ModelFacts,
    OutsideAllocator,
    PlanDocument,
    SpeedFigures,
    StoredFacts,
    StrategyChoice,
    TensorLine,
    UncertainTerm,
    from_json,
    to_json,
    workload_document,
)
from gpu_plan.planner.workload.training import Precision, Workload
from tests.support.plan_example import H100X8, llama_on_8xh100, memory, nothing_fits

SIZES = st.integers(0, 2**50)
EVIDENCE = st.sampled_from(["traced", "source", "measured", "assumed"])
TEXT = st.text(max_size=20)
SECONDS = st.floats(1e-6, 1e6)
OPTIONAL_TEXT = st.none() | TEXT
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def memories(draw: st.DrawFn) -> MemoryFigures:
    at_peak = AtPeak(**{name: draw(SIZES) for name in CATEGORY_NAMES})
    outside = OutsideAllocator(cuda_context=draw(SIZES), nccl=draw(SIZES))
    used = at_peak.total + outside.total + draw(SIZES)
    slack, margin = draw(SIZES), draw(SIZES)
    term = UncertainTerm(name=draw(TEXT), bytes=slack, low_bytes=0, high_bytes=slack + margin, basis=draw(EVIDENCE))
    return MemoryFigures(
        peak_allocated_bytes=at_peak.total,
        peak_reserved_bytes=draw(st.none() | st.just(at_peak.total + 1)),
        device_used_bytes=used,
        device_used_low_bytes=draw(st.integers(0, used)),
        device_used_high_bytes=used + margin,
        capacity_bytes=draw(st.integers(1, 2**54)),
        phase_of_peak=draw(TEXT),
        at_peak=at_peak,
        outside_allocator=outside,
        uncertain=(term,),
        at_rest_bytes=draw(st.integers(0, at_peak.total)),
        phase_peaks=draw(st.dictionaries(TEXT, st.integers(0, at_peak.total), max_size=3)),
        host_bytes=draw(SIZES),
        host=draw(st.none() | st.builds(HostFigures, load_bytes=SIZES, step_bytes=SIZES, save_bytes=SIZES)),
    )


@st.composite
def speeds(draw: st.DrawFn) -> SpeedFigures:
    low, middle, high = sorted(draw(st.tuples(SECONDS, SECONDS, SECONDS)))
    return SpeedFigures(
        step_seconds=middle,
        step_seconds_low=low,
        step_seconds_high=high,
        tokens_per_second_per_gpu=draw(st.none() | SECONDS),
        samples_per_second=draw(SECONDS),
        mfu=draw(st.none() | st.floats(0, 1)),
        basis=draw(EVIDENCE),
        parts=draw(st.dictionaries(TEXT, SECONDS, max_size=2)),
    )


TENSORS = st.builds(
    TensorLine,
    bytes=SIZES,
    count=st.integers(1, 100),
    category=st.sampled_from(CATEGORY_NAMES),
    module=TEXT,
    operator=OPTIONAL_TEXT,
    shape=st.lists(st.integers(0, 2**40), max_size=4).map(tuple),
    dtype=TEXT,
    phase=TEXT,
    basis=EVIDENCE,
)
CHOICES = st.builds(
    StrategyChoice,
    name=TEXT,
    data_parallel=st.integers(1, 512),
    zero_stage=st.integers(0, 3),
    micro_batch_size=st.integers(1, 64),
    gradient_accumulation_steps=st.integers(1, 64),
    precision=TEXT,
)


@st.composite
def candidates(draw: st.DrawFn, verdict: str) -> Candidate:
    needs_memory = verdict == "fits" or draw(st.booleans())
    return Candidate(
        strategy=draw(CHOICES),
        verdict=verdict,  # type: ignore[arg-type]
        memory=draw(memories()) if needs_memory else None,
        speed=draw(st.none() | speeds()),
        reason=draw(st.text(min_size=1, max_size=30)) if verdict == "no" else None,
        command=draw(OPTIONAL_TEXT),
        explain=draw(st.none() | st.lists(TENSORS, max_size=2).map(tuple)),
    )


@st.composite
def documents(draw: st.DrawFn) -> PlanDocument:
    total = draw(SIZES)
    fitting = draw(st.lists(candidates("fits"), max_size=2))
    tight = draw(st.lists(candidates("tight"), max_size=1))
    model = ModelFacts(
        id=draw(TEXT),
        class_name=draw(TEXT),
        model_type=draw(OPTIONAL_TEXT),
        kind=draw(TEXT),
        parameters=total,
        trainable_parameters=draw(st.integers(0, total)),
        config_digest=draw(TEXT),
        stored=draw(st.none() | st.builds(StoredFacts, parameters=SIZES, bytes=SIZES, by_dtype=st.just({"f": 1}))),
        notes=tuple(draw(st.lists(TEXT, max_size=2))),
    )
    workload = draw(st.dictionaries(TEXT.filter(lambda name: name != "basis"), JSON_VALUES, max_size=3))
    return PlanDocument(
        command=draw(TEXT),
        created_with=draw(st.dictionaries(TEXT, TEXT, max_size=2)),
        model=model,
        cluster={**H100X8, "more": draw(JSON_VALUES)},
        workload={**workload, "basis": dict.fromkeys(workload, "given")},
        plans=(*fitting, *tight),
        rejected=tuple(draw(st.lists(candidates("no"), max_size=2))),
        assumptions=tuple(draw(st.lists(st.builds(Assumption, text=TEXT, basis=EVIDENCE), max_size=2))),
        warnings=tuple(draw(st.lists(TEXT, max_size=2))),
        nearest_change=draw(OPTIONAL_TEXT),
    )


@settings(max_examples=60, deadline=None)
@given(documents())
def test_json_round_trip(document: PlanDocument) -> None:
    text = to_json(document)
    again = from_json(text, "plan.json")
    assert again == document
    assert to_json(again) == text
    assert text.isascii()


@settings(max_examples=60, deadline=None)
@given(memories())
def test_figures_agree(figures: MemoryFigures) -> None:
    written = json.loads(to_json(replace(llama_on_8xh100(), plans=(), rejected=(_loser(figures),))))
    section = written["rejected"][0]["memory"]
    assert sum(section["at_peak"].values()) == section["peak_allocated_bytes"]
    assert list(section["at_peak"]) == list(CATEGORY_NAMES)
    assert section["headroom_bytes"] == section["capacity_bytes"] - section["device_used_bytes"]
    inside = figures.device_used_high_bytes <= figures.capacity_bytes
    assert (figures.verdict == "fits") == inside
    assert (figures.verdict == "no") == (figures.device_used_low_bytes > figures.capacity_bytes)


def _loser(figures: MemoryFigures) -> Candidate:
    choice = StrategyChoice(name="ddp", micro_batch_size=1, precision="fp32")
    return Candidate(strategy=choice, verdict="no", memory=figures, reason="too much")


@pytest.mark.parametrize("category", CATEGORY_NAMES)
def test_at_peak_must_sum_to_the_peak(category: str) -> None:
    figures = memory(parameters=1000, kv_cache=24)
    off_by_one = replace(figures.at_peak, **{category: figures.at_peak.items()[category] + 1})
    with pytest.raises(ValueError, match="at_peak sums to 1025, peak_allocated_bytes is 1024"):
        replace(figures, at_peak=off_by_one)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device_used_low_bytes": 2**60}, "out of order"),
        ({"device_used_high_bytes": 5}, "out of order"),
        ({"device_used_bytes": 1024, "device_used_low_bytes": 0}, "below peak_allocated"),
        ({"peak_reserved_bytes": 1023}, "below the allocated peak"),
        ({"at_rest_bytes": 1025}, "above the peak"),
        ({"phase_peaks": {"forward": 1025}}, "phase_peaks go beyond the peak"),
        ({"host_bytes": -1}, "host_bytes is -1"),
        ({"capacity_bytes": 0}, "capacity_bytes is 0"),
    ],
)
def test_contradicting_memory_is_refused(change: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(memory(parameters=1024), **change)


def test_batch_and_world_are_products() -> None:
    choice = StrategyChoice(
        name="fsdp",
        data_parallel=4,
        tensor_parallel=2,
        expert_parallel=4,
        micro_batch_size=3,
        gradient_accumulation_steps=5,
        precision="bf16",
    )
    assert (choice.global_batch_size, choice.world_size) == (60, 8)


def test_plans_and_rejected_are_told_apart() -> None:
    document = llama_on_8xh100()
    tight = replace(document.plans[0], verdict="tight")
    assert not tight.fits
    with pytest.raises(ValueError, match="then the tight ones"):
        replace(document, plans=(tight, document.plans[1]))
    with pytest.raises(ValueError, match="needs the verdict 'no' and a reason"):
        replace(document, rejected=(replace(document.rejected[0], reason=None),))


@pytest.mark.parametrize("spec", ["8xH100", "2x8xA100-80GB", "2xcpu", "colab-t4", "1xMI300X"])
def test_every_cluster_section_is_accepted(spec: str) -> None:
    section = cluster_document(parse_cluster(spec, ram_bytes=2**36))
    assert replace(llama_on_8xh100(), cluster=section).cluster["spec"] == section["spec"]


def test_workload_section_tells_every_origin() -> None:
    workload = Workload(precision=Precision("fp32"), settings=(("data.padding", "1"),)).with_basis(precision="given")
    section = workload_document(workload)
    assert section["precision"] == "fp32"
    assert section["settings"] == {"data.padding": "1"}
    basis = section["basis"]
    assert isinstance(basis, dict)
    assert (basis["precision"], basis["optimizer"], basis["micro_batch"]) == ("given", "default", "searched")
    assert set(basis) == set(section) - {"basis"}


def test_integers_of_other_libraries_become_ints() -> None:
    class Whole:
        def __index__(self) -> int:
            return 7

    document = replace(llama_on_8xh100(), cluster={**H100X8, "more": Whole(), "pair": (1, 2)})
    assert document.cluster["more"] == 7
    assert document.cluster["pair"] == [1, 2]


def test_nan_is_never_written() -> None:
    with pytest.raises(ValueError, match="nan"):
        replace(llama_on_8xh100(), cluster={**H100X8, "more": math.nan})


def test_unknown_keys_are_passed_over() -> None:
    value = json.loads(to_json(llama_on_8xh100()))
    value["later"] = {"a": 1}
    value["model"]["later"] = 1
    value["plans"][0]["memory"]["at_peak"]["later"] = 0
    assert from_json(json.dumps(value), "plan.json") == llama_on_8xh100()


def test_older_documents_without_optional_keys_are_read() -> None:
    value = json.loads(to_json(nothing_fits()))
    for key in ("warnings", "assumptions", "nearest_change"):
        del value[key]
    for candidate in value["rejected"]:
        del candidate["fits"], candidate["memory"]["headroom_bytes"], candidate["memory"]["uncertain"]
    again = from_json(json.dumps(value), "plan.json")
    assert again.warnings == ()
    assert again.rejected[0].memory is not None
    assert again.rejected[0].memory.headroom_bytes < 0


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("schema_version", 2, "schema_version is 2, this version reads 1"),
        ("schema_version", True, "schema_version is True"),
        ("schema_version", None, "has no schema_version"),
        ("plans.0.memory.capacity_bytes", "80GB", 'plans[0].memory.capacity_bytes is "80GB", not an integer'),
        ("plans.0.memory.capacity_bytes", 1.5, "plans[0].memory.capacity_bytes is 1.5, not an integer"),
        ("plans.0.memory.host_bytes", True, "plans[0].memory.host_bytes is true, not an integer"),
        ("plans.0.memory.peak_allocated_bytes", 7, "plans[0].memory: at_peak sums to"),
        ("plans.0.verdict", "maybe", 'plans[0].verdict is "maybe", not one of fits, tight, no'),
        ("plans.0.fits", False, "plans[0].fits is false, but the rest says true"),
        ("plans.0.strategy", [], "plans[0].strategy is a list of 0, not an object"),
        ("plans.0.explain.0.shape", [1, "x"], 'plans[0].explain[0].shape[1] is "x", not an integer'),
        ("plans.0.speed.parts", {"compute": "fast"}, 'plans[0].speed.parts.compute is "fast", not a number'),
        ("plans", {}, "plans is an object of 0, not a list"),
        ("model.parameters", None, "model.parameters is null, not an integer"),
        ("cluster.usable_bytes", "much", "cluster.usable_bytes is 'much', not of type int"),
        ("workload.basis", {}, "workload.basis must tell the origin"),
        ("warnings", [1], "warnings[0] is 1, not a string"),
    ],
)
def test_wrong_values_are_named(path: str, value: object, words: str) -> None:
    document = json.loads(to_json(llama_on_8xh100()))
    *parents, last = path.split(".")
    place = document
    for key in parents:
        place = place[int(key)] if isinstance(place, list) else place[key]
    place[last] = value
    with pytest.raises(InputError) as raised:
        from_json(json.dumps(document), "plan.json")
    message = str(raised.value)
    assert message.startswith("plan.json")
    assert words in message
    assert len(message) < 250


@pytest.mark.parametrize("key", ["model", "cluster", "plans", "command"])
def test_missing_keys_are_named(key: str) -> None:
    document = json.loads(to_json(llama_on_8xh100()))
    del document[key]
    with pytest.raises(InputError, match=rf"^plan.json: the document has no {key}: "):
        from_json(json.dumps(document), "plan.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("[]", "holds a list of 0, not an object"),
        ("[" * 100_000, "nested too deeply"),
        # Python 3.14 reads deeper than older ones do, to where the text is cut off.
        ('{"schema_version": 1, "a": ' * 50_000, "nested too deeply|not complete JSON"),
        ('{"a": NaN}', "NaN, which is not a number"),
        ('{"a": 1e999}', "beyond all bounds"),
        ('{"a": ' + "9" * 5000 + "}", "an integer of 5000 digits"),
        (b"\xff\xfe{}", "is not UTF-8"),
        ("{}", "no schema_version"),
    ],
)
def test_hostile_text_is_refused_in_one_line(text: str | bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        from_json(text, "plan.json")
    assert len(str(raised.value)) < 200


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_truncated_documents_are_refused(data: st.DataObject) -> None:
    text = to_json(nothing_fits())
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(InputError, match=r"^plan\.json "):
        from_json(text[:cut], "plan.json")


def test_the_document_needs_no_heavy_import() -> None:
    code = (
        "import sys, gpu_plan.planner.plan.document, gpu_plan.planner.plan.files;"
        "import gpu_plan.reports.plan.markdown, gpu_plan.reports.plan.as_json;"
        "print([name for name in ('torch', 'transformers', 'numpy', 'rich') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
