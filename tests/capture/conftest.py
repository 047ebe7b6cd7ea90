"""Captures on machines that have other work."""

import pytest

from gpu_plan.planner.capture import job


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user is told after a minute; a test waits for what it asks about, however busy the machine is."""
    monkeypatch.setattr(job, "_SECONDS", 1200.0)
