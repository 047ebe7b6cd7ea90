"""Recorded steps made linear: what belongs together, what is rounded, and what lies on no line."""

from dataclasses import replace

import pytest

from gpu_plan.planner.trace.events import CATEGORIES, CATEGORY_INDEX, Category, Kind, Mark, ModuleLayout, StepTrace
from gpu_plan.planner.trace.recording.fit import Recording, fit, signature
from gpu_plan.planner.trace.recording.recorder import RawTensor, RawTrace
from gpu_plan.planner.trace.sizes.errors import NotLinearError

KIB = 1024


def storage(nbytes: int, *, scratch: bool = False, dtype: str = "float32") -> RawTensor:
    return RawTensor(
        nbytes=nbytes,
        shape=(nbytes // 4,),
        dtype=dtype,
        category=CATEGORY_INDEX[Category.ACTIVATIONS],
        module=0,
        operator="mm",
        is_scratch=scratch,
    )


def recorded(micro_batch: int, *tensors: RawTensor) -> Recording:
    """Forward makes all of them, one after the other."""
    raw = RawTrace(
        kind=[Kind.MARK, *[Kind.ALLOC] * len(tensors), Kind.MARK],
        subject=[Mark.FORWARD, *range(len(tensors)), Mark.BACKWARD],
        tensors=list(tensors),
        modules=[""],
    )
    return Recording(
        micro_batch=micro_batch, raw=raw, inputs=(("input_ids", 64 * micro_batch),), tokens=8 * micro_batch
    )


def fitted(*recordings: Recording) -> StepTrace:
    return fit(recordings, [], [], ModuleLayout(), [])


def line(*sizes: int, scratch: bool = False) -> StepTrace:
    """One storage of these sizes at micro batches 2, 4 and 16."""
    return fitted(*(recorded(at, storage(size, scratch=scratch)) for at, size in zip((2, 4, 16), sizes, strict=True)))


def test_what_grows_with_the_batch_is_known_between() -> None:
    trace = line(1000 + 2 * 32, 1000 + 4 * 32, 1000 + 16 * 32)
    assert trace.tensor_bytes(9).tolist() == [1000 + 9 * 32]
    assert (trace.inputs, trace.tokens_per_sample, trace.samples) == ([("input_ids", 64, 0)], 8, (2, 4, 16))


@pytest.mark.parametrize(
    "sizes", [(64, 132, 512), (64, 64, 512), (64, 128, 513)], ids=["off by four bytes", "a kink", "no whole slope"]
)
def test_what_bends_is_no_line(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(NotLinearError, match="does not grow linearly"):
        line(*sizes)


def test_a_kernels_own_temporary_may_leave_the_line_by_a_tile() -> None:
    """On the line there were 64 KiB at four samples."""
    assert line(32 * KIB, 128 * KIB, 256 * KIB, scratch=True).tensor_bytes(16).tolist() == [256 * KIB]
    with pytest.raises(NotLinearError):
        line(32 * KIB, 128 * KIB + 4, 256 * KIB, scratch=True)


def test_what_has_no_whole_slope_is_never_less_than_was_recorded() -> None:
    """Ten bytes over three samples: four each."""
    trace = fitted(recorded(2, storage(100, scratch=True)), recorded(5, storage(110, scratch=True)))
    assert [int(trace.tensor_bytes(batch)[0]) for batch in (2, 3, 5)] == [100, 104, 112]


def test_one_recording_holds_for_its_own_micro_batch() -> None:
    trace = fitted(recorded(3, storage(100)))
    assert (trace.tensor_bytes(3).tolist(), trace.samples) == ([100], (3,))


def test_what_forward_makes_and_drops_is_temporary() -> None:
    """Dropped before backward begins; what backward drops was kept for it."""
    one = recorded(2, storage(64), storage(64), storage(64))
    raw = replace(
        one.raw,
        kind=[*one.raw.kind[:-1], Kind.FREE, Kind.MARK, Kind.FREE],
        subject=[*one.raw.subject[:-1], 1, Mark.BACKWARD, 2],
    )
    categories = [CATEGORIES[index] for index in fitted(replace(one, raw=raw)).category]
    assert categories == [Category.ACTIVATIONS, Category.TEMPORARY, Category.ACTIVATIONS]


def test_a_step_in_another_type_is_another_step_and_one_of_other_sizes_is_not() -> None:
    small, large, other = (recorded(2, one).raw for one in (storage(64), storage(128), storage(64, dtype="bfloat16")))
    assert signature(small) == signature(large) != signature(other)
