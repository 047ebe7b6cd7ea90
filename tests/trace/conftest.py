"""Real model classes built on machines that have other work."""

import pytest

from gpu_plan.planner.job import answer
from gpu_plan.planner.job.alternatives.beside import Beside
from gpu_plan.planner.model.build import guard


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constructor is bounded by the modules that it makes; its 20 seconds are for users' machines."""
    monkeypatch.setattr(guard, "MAX_BUILD_SECONDS", 1200.0)


@pytest.fixture
def plans_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else could be done is not looked for: it takes longer than a plan, and a test of plans reads none of it."""
    monkeypatch.setattr(answer, "_else", lambda job, found, questions, ahead: (Beside(), None))
