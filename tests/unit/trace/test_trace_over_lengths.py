"""Traces over sequence lengths: what recordings prove is told to the byte, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.rules import PartialSums, Ruled
from gpu_plan.planner.trace.sizes.errors import NotLinearError
from gpu_plan.planner.trace.sizes.lengths import lengths_of, longest
from gpu_plan.planner.trace.storage import CorruptTraceError, dump
from gpu_plan.planner.trace.storage.over_lengths import read_lengths, written_lengths
from tests.support.tiny_trace import tiny_trace

LENGTHS = (128, 1000, 2048, 4096, 8192)
BASE = tiny_trace([(64, 4), (8,)])


def at(length: int, *, window: int = 1 << 40, ruled: bool = True) -> StepTrace:
    """A step whose first storage grows with the square, up to a window, and whose second follows a rule."""
    fixed, per_sample = BASE.bytes_fixed.copy(), BASE.bytes_per_sample.copy()
    fixed[0], per_sample[0] = 7 * length, 2 * length * min(length, window)
    shapes = [f"[<{length}*B+0>, 4096] bfloat16", *BASE.tensor_shape[1:]]
    rules: list[Ruled | None] = [None] * BASE.num_tensors
    if ruled:
        rules[1] = Ruled(PartialSums(rows=1000, width=8), 0, length)
    return replace(
        BASE,
        bytes_fixed=fixed,
        bytes_per_sample=per_sample,
        tensor_shape=shapes,
        tensor_rule=rules if ruled else [],
        tokens_per_sample=length,
    )


def same(one: StepTrace, other: StepTrace) -> bool:
    """Whether two traces are equal where nothing follows rules, and their rules are."""
    if one.tensor_rule != other.tensor_rule:
        return False
    free = [rule is None for rule in one.tensor_rule or [None] * one.num_tensors]
    sizes = ("bytes_fixed", "bytes_per_sample")
    alike = all(np.array_equal(getattr(one, name)[free], getattr(other, name)[free]) for name in sizes)
    shapes = [text for text, is_free in zip(one.tensor_shape, free, strict=True) if is_free]
    return (
        alike
        and shapes == [text for text, is_free in zip(other.tensor_shape, free, strict=True) if is_free]
        and one.tokens_per_sample == other.tokens_per_sample
        and np.array_equal(one.op_flops_per_sample, other.op_flops_per_sample)
    )


@pytest.mark.parametrize("length", [128, 129, 4095, 4096, 5000, 8192])
@pytest.mark.parametrize("ruled", [True, False])
def test_lengths_between_are_told_as_they_would_be_recorded(length: int, ruled: bool) -> None:
    told = read_lengths(written_lengths(lengths_of({one: at(one, ruled=ruled) for one in LENGTHS})))
    assert told.holds(length)
    assert same(told.at(length), at(length, ruled=ruled))


def test_nothing_is_told_beyond_the_recordings() -> None:
    told = lengths_of({one: at(one) for one in LENGTHS})
    assert not told.holds(127)
    assert not told.holds(8193)


def test_a_window_ends_what_is_told() -> None:
    spans = longest({one: at(one, window=4096) for one in (*LENGTHS, 16384, 32768, 65536)})
    assert [(span.first, span.last) for span in spans] == [(128, 4096), (4096, 65536)]
    assert same(spans[1].at(5000), at(5000, window=4096))


def test_three_lengths_prove_nothing() -> None:
    with pytest.raises(NotLinearError):
        lengths_of({one: at(one) for one in LENGTHS[:3]})


def test_another_structure_is_never_told() -> None:
    other = at(8192)
    with pytest.raises(NotLinearError, match="structure"):
        lengths_of({one: at(one) for one in LENGTHS[:4]} | {8192: replace(other, category=other.category + 1)})


def test_shapes_that_coincide_at_one_length_are_told_apart() -> None:
    told = lengths_of({one: at(one) for one in (64, *LENGTHS)})
    assert told.at(4096).tensor_shape[0] == "[<4096*B+0>, 4096] bfloat16"
    assert told.at(64).tensor_shape[2:] == at(64).tensor_shape[2:]


@pytest.mark.parametrize("cut", [0, 5, 100, -1, -200])
def test_damaged_bytes_are_refused(cut: int) -> None:
    content = written_lengths(lengths_of({one: at(one) for one in LENGTHS}))
    with pytest.raises(CorruptTraceError):
        read_lengths(content[:cut])


def test_what_is_told_is_a_trace_that_can_be_kept() -> None:
    assert dump(replace(lengths_of({one: at(one) for one in LENGTHS}).at(777), tensor_rule=[]))
