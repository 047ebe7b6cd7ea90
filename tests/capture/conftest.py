"""Captures on machines that have other work."""

import pytest

from gpu_plan.planner.capture import job


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test waits for what it asks about, however slow the machine is."""
    monkeypatch.setattr(job, "_SECONDS", 1200.0)
