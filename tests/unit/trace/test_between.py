"""When the two ends of a range tell what lies between them."""

import pytest

from gpu_plan.planner.trace.recording.between import ends_suffice
from gpu_plan.planner.trace.recording.fit import Recording
from gpu_plan.planner.trace.recording.recorder import RawTensor, RawTrace
from gpu_plan.planner.trace.rules import Ruled


def recording(micro_batch: int, shape: tuple[int, ...], nbytes: int, *, ruled: Ruled | None = None) -> Recording:
    tensor = RawTensor(nbytes=nbytes, shape=shape, dtype="uint8", category=0, module=0, operator="mm", ruled=ruled)
    return Recording(
        micro_batch=micro_batch, raw=RawTrace(kind=[0], subject=[0], tensors=[tensor]), inputs=(), tokens=1
    )


@pytest.mark.parametrize(
    ("low", "high", "suffice"),
    [
        (((7, 5), 35), ((7, 5), 35), True),
        (((2, 5), 10), ((16, 5), 80), True),
        (((2, 5), 512), ((16, 5), 4096), True),
        (((8, 5), 40), ((64, 5), 320), True),
        (((3, 5), 15), ((17, 5), 85), False),
        (((2, 2), 4), ((16, 16), 256), False),
        (((2, 5), 10), ((16, 5), 96), False),
        (((7, 5), 35), ((7, 5), 64), False),
    ],
    ids=[
        "the same",
        "samples",
        "samples in blocks",
        "four of each",
        "one more than the samples",
        "samples by samples",
        "bytes that are rounded",
        "bytes that grow alone",
    ],
)
def test_what_is_constant_or_in_proportion_needs_nothing_between(
    low: tuple[tuple[int, ...], int], high: tuple[tuple[int, ...], int], suffice: bool
) -> None:
    assert ends_suffice(recording(2, *low), recording(16, *high)) is suffice


def test_another_structure_is_never_told() -> None:
    low, high = recording(2, (2,), 2), recording(16, (16,), 16)
    high.raw.kind.append(1)
    high.raw.subject.append(0)
    assert not ends_suffice(low, high)
