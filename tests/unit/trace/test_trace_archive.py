"""A trace as it is kept in a file: what is read is what was written."""

import json
import lzma
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpu_plan.planner.trace.events import NARROW, ParameterInfo
from gpu_plan.planner.trace.storage.archive import CorruptTraceError, dump, load, read, written
from tests.support.same_trace import assert_same_trace
from tests.unit.trace.test_expand import step


def test_a_trace_comes_back_as_it_was() -> None:
    trace = step(5, folded=False, shared=True)
    assert_same_trace(load(dump(trace)), trace)
    assert_same_trace(read(written(trace)), trace)


@pytest.mark.parametrize(
    "traits",
    [
        {},
        {"split": True},
        {"experts": True},
        {"split": True, "experts": True},
        {"tied_to": "lm_head.weight"},
        {"trainable": False, "dtype": "uint8"},
    ],
)
def test_parameters_come_back_as_they_were(traits: dict[str, object]) -> None:
    whole: dict[str, object] = {"shape": (4, 4), "dtype": "float32", "trainable": True, "module": "layers.0"}
    parameter = ParameterInfo(name="layers.0.weight", **{**whole, **traits})  # type: ignore[arg-type]
    trace = step(5, folded=False)
    trace = replace(trace, parameters=[parameter, *trace.parameters[1:]])
    assert load(dump(trace)).parameters == trace.parameters


def test_what_each_tensor_is_and_what_is_held_come_back() -> None:
    trace = step(5, folded=False)
    count = trace.num_tensors
    shapes = [f"[B, {1 + number % 3}] float32" for number in range(count)]
    origins = [("", "mm in layers.0", "the loss")[number % 3] for number in range(count)]
    whole = replace(trace, tensor_shape=shapes, tensor_origin=origins, held=[2, 5])
    back = load(dump(whole))
    assert (back.tensor_shape, back.tensor_origin, back.held) == (shapes, origins, [2, 5])


def changed(change: Callable[[dict[str, Any]], object], *, cut: int = 0) -> bytes:
    """A trace's bytes with its JSON text changed, and so many bytes of the columns' end missing."""
    raw = lzma.decompress(dump(step(5, folded=False)))
    start = 8 + int.from_bytes(raw[:8], "little")
    rest = json.loads(raw[8:start])
    change(rest)
    text = json.dumps(rest, separators=(",", ":")).encode()
    columns = raw[start : len(raw) - cut]
    return lzma.compress(len(text).to_bytes(8, "little") + text + columns, format=lzma.FORMAT_XZ, preset=0)


def test_another_format_is_refused_however_alike_it_looks() -> None:
    load(changed(lambda rest: None))
    for other in (3, 5):
        with pytest.raises(CorruptTraceError, match="another format"):
            load(changed(lambda rest, other=other: rest.update(format=other)))  # type: ignore[misc]


@pytest.mark.parametrize(
    "change",
    [
        lambda rest: rest.pop("held"),
        lambda rest: rest.update(shapes=[]),
        lambda rest: rest["columns"].pop(),
        lambda rest: rest["counts"].pop(),
        lambda rest: rest.update(buffer_bytes=[1]),
        lambda rest: rest.update(ragged=["many", "more"]),
    ],
    ids=["a part is missing", "no such shape", "a column too few", "a count too few", "no pair", "no number"],
)
def test_damage_is_one_error(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(CorruptTraceError):
        load(changed(change))


def test_traces_hold_what_is_equal_once_and_nobody_writes_to_it() -> None:
    trace = step(5, folded=False)
    other = replace(trace, bytes_fixed=trace.bytes_fixed + 512, tokens_per_sample=7)
    first, second = load(dump(trace)), load(dump(other))
    assert first.kind is second.kind
    assert first.op_flops_fixed is second.op_flops_fixed
    assert first.parameters is second.parameters
    assert first.tensor_shape is second.tensor_shape
    assert (second.bytes_fixed - first.bytes_fixed == 512).all()
    with pytest.raises(ValueError, match="read-only"):
        first.subject[0] = 1


def test_what_is_held_once_goes_with_the_last_trace() -> None:
    trace = load(dump(step(5, folded=False)))
    held = weakref.ref(trace.subject), weakref.ref(trace.modules)
    assert all(one() is not None for one in held)
    del trace
    assert [one() for one in held] == [None, None]


def test_columns_are_as_narrow_as_a_trace_says() -> None:
    trace = load(dump(step(5, folded=False)))
    assert {name: getattr(trace, name).dtype for name in NARROW} == {
        name: np.dtype(one) for name, one in NARROW.items()
    }
    assert trace.bytes_fixed.dtype == trace.bytes_per_sample.dtype == np.int64


@pytest.mark.parametrize(("name", "number"), [("category", 1 << 9), ("tensor_module", 1 << 40)])
def test_a_number_that_no_column_of_its_kind_holds_is_one_error(name: str, number: int) -> None:
    trace = step(5, folded=False)
    whole = written(replace(trace, **{name: getattr(trace, name).astype(np.int64) + number}))
    with pytest.raises(CorruptTraceError, match="too large"):
        read(whole)


def test_columns_that_end_early_are_one_error() -> None:
    for content in (changed(lambda rest: None, cut=9), dump(step(5, folded=False))[:-20], b"no trace"):
        with pytest.raises(CorruptTraceError):
            load(content)
