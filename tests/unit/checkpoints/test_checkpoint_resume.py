"""Which plan goes on from which checkpoint."""

import time
from pathlib import Path

import pytest

from gpu_plan.executor.checkpoints.find import Checkpoint
from gpu_plan.executor.checkpoints.manifest import (
    DCP,
    DEEPSPEED,
    DEEPSPEED_UNIVERSAL,
    REPLICATED,
    FileEntry,
    Manifest,
)
from gpu_plan.executor.checkpoints.resume import Conversion, Resume, decide_resume, make_ready
from gpu_plan.planner.errors import PreflightError

LAYOUTS = {"single": REPLICATED, "ddp": REPLICATED, "fsdp": DCP, "hsdp": DCP, "fsdp1": DCP}
STRATEGIES = (*LAYOUTS, "zero1", "zero2", "zero3")


def checkpoint(strategy: str, world_size: int, **changed: object) -> Checkpoint:
    given: dict[str, object] = {
        "step": 4,
        "stack": "accelerate",
        "layout": LAYOUTS.get(strategy, DEEPSPEED),
        "strategy": strategy,
        "world_size": world_size,
        "created": time.time(),
        "parameter_names": ("a",),
        "files": {"model": FileEntry(bytes=1000)},
    }
    return Checkpoint(path=Path("/saved/step-4"), manifest=Manifest(**(given | changed)))  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_plan_takes_it_as_it_stands(strategy: str) -> None:
    found = decide_resume(checkpoint(strategy, 2), strategy, 2)
    assert (found.conversion, found.refused, found.notes) == (None, None, ())


@pytest.mark.parametrize(
    ("before", "after", "ranks", "layout"),
    [
        ("ddp", "single", 1, None),
        ("single", "ddp", 4, None),
        ("ddp", "ddp", 4, None),
        ("fsdp", "fsdp", 4, None),
        ("fsdp", "hsdp", 4, None),
        ("fsdp1", "fsdp1", 1, None),
        ("ddp", "fsdp", 2, DCP),
        ("single", "hsdp", 4, DCP),
        ("fsdp", "ddp", 2, REPLICATED),
        ("hsdp", "single", 1, REPLICATED),
        ("zero2", "zero2", 1, DEEPSPEED_UNIVERSAL),
        ("zero3", "zero3", 4, DEEPSPEED_UNIVERSAL),
        ("zero2", "zero3", 2, DEEPSPEED_UNIVERSAL),
        ("zero1", "zero2", 2, DEEPSPEED_UNIVERSAL),
    ],
)
def test_another_plan(before: str, after: str, ranks: int, layout: str | None) -> None:
    found = decide_resume(checkpoint(before, 2), after, ranks)
    assert found.refused is None
    assert (found.conversion and found.conversion.layout) == layout
    assert bool(found.notes) == (ranks > 2)
    if found.conversion is not None:
        copies = 2 if layout == DEEPSPEED_UNIVERSAL else 1
        assert found.conversion.needed_bytes == copies * 1000


@pytest.mark.parametrize(
    ("before", "after"),
    [("zero3", "zero2"), ("fsdp", "zero3"), ("ddp", "zero2"), ("zero2", "fsdp"), ("ddp", "fsdp1"), ("fsdp1", "fsdp")],
)
def test_what_cannot_be_is_refused_in_one_line(before: str, after: str) -> None:
    found = decide_resume(checkpoint(before, 2), after, 2)
    assert found.conversion is None
    assert found.refused is not None
    assert "\n" not in found.refused
    with pytest.raises(PreflightError, match="cannot be resumed under this plan"):
        make_ready(found, Path("/nowhere"))


def test_weights_alone_and_unnamed_parameters_are_refused() -> None:
    assert decide_resume(checkpoint("ddp", 2, resumable=False), "ddp", 2).refused
    assert decide_resume(checkpoint("ddp", 2, parameter_names=()), "fsdp", 2).refused


def test_a_universal_checkpoint_is_for_its_stage() -> None:
    made = checkpoint("zero3", 2, layout=DEEPSPEED_UNIVERSAL)
    assert decide_resume(made, "zero3", 4).refused is None
    assert decide_resume(made, "zero2", 2).refused is not None


def test_too_small_a_disk_is_seen_before(tmp_path: Path) -> None:
    huge = Conversion(layout=DCP, strategy="fsdp", world_size=2, needed_bytes=1 << 62)
    with pytest.raises(PreflightError, match="GB free: make room"):
        make_ready(Resume(checkpoint=checkpoint("ddp", 2), conversion=huge), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("after", ["single", "ddp", "fsdp", "fsdp1"])
def test_zero_state_is_not_for_other_engines(after: str) -> None:
    refused = decide_resume(checkpoint("zero2", 2), after, 2).refused
    assert refused == f"zero2 state is not read by {after}, only its weights are: stay with ZeRO"
