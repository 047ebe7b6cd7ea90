"""Whether an engine beside an update sleeps, where nobody said so: awake where there is room, asleep where not."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_plan.planner.job import rollouts
from gpu_plan.planner.job.rollouts import RolloutEvaluator
from gpu_plan.planner.search.training.evaluate import Evaluator

AWAKE, ASLEEP = 40, 2
"""GiB that the engine keeps."""


@dataclass(frozen=True)
class Judged:
    """A candidate: what it takes without the engine."""

    own: int
    family: str = "family"
    batch: Any = None
    terms: tuple[int, ...] = ()
    sleeps: bool = False
    states_only: bool = False
    capacity: int = 80
    blocks: int = 0
    """What the allocator holds beyond, seen once it is simulated."""

    @property
    def used_bytes(self) -> int:
        return self.own + sum(self.terms)

    @property
    def device_verdict(self) -> str:
        return "fits" if self.used_bytes <= self.capacity else "no"


@dataclass(frozen=True)
class Engine:
    """What it keeps, by itself its term."""

    held_bytes: int

    @property
    def term(self) -> int:
        return self.held_bytes


def evaluator(monkeypatch: pytest.MonkeyPatch, own: int, blocks: int = 0, *, is_open: bool = True) -> RolloutEvaluator:
    monkeypatch.setattr(
        Evaluator,
        "_judge",
        lambda self, family, batch, trace, states_only=False: Judged(own, batch=batch, blocks=blocks),
    )
    monkeypatch.setattr(
        Evaluator, "simulate", lambda self, one, *, pressed: replace(one, own=one.own + one.blocks, blocks=0)
    )
    monkeypatch.setattr(Evaluator, "variant", lambda self, family: None)
    monkeypatch.setattr(rollouts, "StepJudgement", Judged)
    made = object.__new__(RolloutEvaluator)
    made.engine = lambda rows: Engine(AWAKE)
    made.asleep = (lambda rows: Engine(ASLEEP)) if is_open else None
    made.provider = SimpleNamespace(trace=lambda variant, size: None)
    return made


def judged(made: RolloutEvaluator, **more: bool) -> Any:
    batch = SimpleNamespace(micro_batch=1, accumulation_steps=1)
    return made._judge("family", batch, None, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("own", "used", "sleeps"), [(30, 70, False), (50, 52, True), (90, 92, True)])
def test_it_sleeps_where_there_is_no_room_else(monkeypatch, own, used, sleeps):
    found = judged(evaluator(monkeypatch, own))
    assert (found.used_bytes, found.sleeps) == (used, sleeps)


def test_what_was_asked_for_stays(monkeypatch):
    found = judged(evaluator(monkeypatch, 50, is_open=False))
    assert (found.used_bytes, found.sleeps, found.device_verdict) == (90, False, "no")


def test_model_states_are_bounded_by_the_lesser(monkeypatch):
    assert judged(evaluator(monkeypatch, 50), states_only=True).used_bytes == 52


@pytest.mark.parametrize(("blocks", "used", "sleeps"), [(5, 75, False), (15, 47, True), (60, 92, True)])
def test_blocks_may_send_it_to_sleep(monkeypatch, blocks, used, sleeps):
    made = evaluator(monkeypatch, 30, blocks)
    found = made.simulate(judged(made))
    assert (found.used_bytes, found.sleeps) == (used, sleeps)
