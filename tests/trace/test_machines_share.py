"""Machines whose GPUs choose kernels alike share traces: in one comparison, and from one run to the next."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.trace.session import TracingSession
from tests.accuracy.architectures import ARCHITECTURES


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the steps that are traced, as they are."""
    found: list[str] = []
    trace = TracingSession.trace

    def counted(self: TracingSession, variant: Any, micro_batch: int) -> Any:
        made = trace(self, variant, micro_batch)
        found.append(f"{variant.key()} {made.samples}")
        return made

    monkeypatch.setattr(TracingSession, "trace", counted)
    return found


def _machines(capsys: pytest.CaptureFixture[str], model: Path, specs: str) -> list[dict[str, Any]]:
    assert main([str(model), "--seq-len", "128", "--machines", specs, "--json"]) == 0
    machines: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["machines"]
    return machines


def test_one_trace_serves_all_gpus_that_choose_kernels_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, traced: list[str]
) -> None:
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    model = tmp_path / "config.json"
    model.write_text(json.dumps(ARCHITECTURES["llama-3"].config()))
    small = _machines(capsys, model, "1xA10,1xL4,1x4090")
    assert len(small) == 3
    assert traced
    assert len(traced) == len(set(traced)), "no step is traced for one machine and again for another"
    count = len(traced)
    assert len(_machines(capsys, model, "1xL40S,1x3090")) == 2
    assert len(traced) == count, "nor in the next run, for further machines of the kind"
    _machines(capsys, model, "1xA100")
    assert len(traced) > count, "flash attention with large shared memory is another kernel"
