"""Ctrl-C in a search tells what is known so far."""

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.search.training.task import TrainingTask


@pytest.mark.parametrize("stopped_at", [0, 7])
def test_what_is_known_is_told(capsys, monkeypatch, tmp_path, stopped_at):
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path))
    asked, explore = [], TrainingTask.explore

    def stopping(task, family, *, exhaustive):
        if len(asked) == stopped_at:
            raise KeyboardInterrupt
        asked.append(family)
        return explore(task, family, exhaustive=exhaustive)

    monkeypatch.setattr(TrainingTask, "explore", stopping)
    code = main(["meta-llama/Llama-3.1-8B", "--gpus", "8xH100"])
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert (code, out) == (130, "")
    assert lines[0].startswith(f"plan: stopped after {stopped_at} of ")
    assert lines[-1] == "plan: interrupted"
    assert len(lines) >= 2 + bool(stopped_at)
    assert all(line.startswith(("plan: fits: ", "plan: tight: ", "plan: does not fit: ")) for line in lines[1:-1])
    assert len(set(lines)) == len(lines)
    assert not list(tmp_path.glob("plans/*"))
