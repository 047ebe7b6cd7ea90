"""Real model classes built on machines that have other work."""

import pytest

from gpu_plan.planner.model.build import guard


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constructor is bounded by the modules that it makes; its 20 seconds are for users' machines."""
    monkeypatch.setattr(guard, "MAX_BUILD_SECONDS", 1200.0)
