"""Generations over prompts and batches: what recordings prove is told to the byte, and nothing else."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.rules import Ruled, SplitKeys
from gpu_plan.planner.trace.sizes.errors import NotLinearError
from gpu_plan.planner.trace.sizes.planes import Size, plane_of
from gpu_plan.planner.trace.sizes.settled import settled
from gpu_plan.planner.trace.storage import CorruptTraceError, dump
from gpu_plan.planner.trace.storage.over_sizes import read_plane, written_plane
from tests.support.tiny_trace import tiny_trace

SIZES = ((100, 2), (1000, 2), (4095, 2), (8192, 2), (100, 17), (1000, 17), (4095, 17), (100, 4096))
ALONE = tuple((prompt, 1) for prompt in (100, 1000, 4095, 8192))
FLAT = tiny_trace([(64, 4), (8,)])
BASE = replace(FLAT, bytes_per_sample=np.zeros_like(FLAT.bytes_per_sample))
SMS = 108


def at(size: Size, *, window: int = 1 << 40, split: bool = False) -> StepTrace:
    """A generation whose first storage grows with pairs of tokens, up to a window, and whose second follows a rule."""
    prompt, batch = size
    fixed = BASE.bytes_fixed.copy()
    fixed[0] = batch * prompt * (prompt + 1) // 2 * 3 + 5 * min(prompt, window) + 7
    shapes = [f"[{batch}, {prompt + 1}] bfloat16", *BASE.tensor_shape[1:]]
    rules: list[Ruled | None] = [None] * BASE.num_tensors
    if split:
        rules[1] = Ruled(SplitKeys(heads=4, queries=1, keys=prompt + 1, width=128, sm_count=SMS), batch)
    return replace(
        BASE,
        bytes_fixed=fixed,
        tensor_shape=shapes,
        tensor_rule=rules if split else [],
        inputs=[("input_ids", 0, 8 * batch * prompt)],
        tokens_per_sample=prompt,
        samples=(batch,),
    )


def recorded(sizes: Iterable[Size], **how: object) -> dict[Size, StepTrace]:
    return {size: at(size, **how) for size in sizes}  # type: ignore[arg-type]


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("size", [(100, 2), (101, 3), (5000, 21), (130, 30), (8192, 2048)])
def test_sizes_between_are_told_as_they_would_be_recorded(size: Size, split: bool) -> None:
    plane = read_plane(written_plane(plane_of(recorded(SIZES, split=split))))
    assert plane.holds(size)
    assert dump(plane.at(size, SMS)) == dump(settled(at(size, split=split), (size[1],)))


def test_one_sample_needs_no_other_batch() -> None:
    plane = read_plane(written_plane(plane_of(recorded(ALONE))))
    assert (plane.least, plane.most) == ((100, 1), (8192, 1))
    assert dump(plane.at((777, 1), SMS)) == dump(at((777, 1)))
    assert not plane.holds((777, 2))
    assert not plane.holds((99, 1))


def test_where_keys_are_not_split_nothing_is_there() -> None:
    plane = plane_of(recorded(SIZES, split=True))
    counts = [plane.at((1000, batch), SMS).num_tensors for batch in (2, 26, 50)]
    assert counts == [BASE.num_tensors, BASE.num_tensors, BASE.num_tensors - 1]
    taken = [plane.at((4095, 2), count).bytes_fixed[1] for count in (SMS, 2 * SMS)]
    assert taken == [4 * 27 * 2 * 4 * 128, 4 * 32 * 2 * 4 * 128], "of 108 multiprocessors 27 splits, of more all keys"


@pytest.mark.parametrize(
    ("traces", "why"),
    [
        (recorded(SIZES, window=2000), "no polynomial|whole numbers"),
        (recorded(SIZES[:6]), "determine"),
        (recorded(ALONE[:3]), "too few"),
        ({**recorded(SIZES), (100, 2): replace(at((100, 2)), notes=["another"])}, "structure"),
        ({**recorded(SIZES), (100, 2): at((100, 2), split=True)}, "split otherwise"),
    ],
)
def test_what_is_not_proved_is_not_told(traces: dict[Size, StepTrace], why: str) -> None:
    with pytest.raises(NotLinearError, match=why):
        plane_of(traces)


@pytest.mark.parametrize("cut", [0, 7, 30, 200, -1])
def test_damaged_bytes_are_refused(cut: int) -> None:
    content = written_plane(plane_of(recorded(SIZES)))
    with pytest.raises(CorruptTraceError):
        read_plane(content[:cut])
