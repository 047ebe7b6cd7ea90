"""The benchmark of first answers: what it asks is understood, and a process's own time is counted."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.answers.first_answer import JOBS, Job, measured, page, processor_seconds
from gpu_plan.planner.options.words import main_parser
from gpu_plan.verbs import VERBS


def test_every_job_is_a_command_line() -> None:
    for job in JOBS.values():
        main_parser(VERBS).parse_args(job.words)


def test_a_process_is_held_by_its_own_processor_time_and_memory(tmp_path: Path) -> None:
    seconds, held = processor_seconds([sys.executable, "-c", "b'x' * 2**26"], str(tmp_path))
    assert seconds > 0
    assert held > 64


def test_an_answer_that_ends_in_an_error_is_no_figure(tmp_path: Path) -> None:
    assert processor_seconds([sys.executable, "-c", "raise SystemExit(1)"], str(tmp_path))[0] > 0
    with pytest.raises(subprocess.CalledProcessError):
        processor_seconds([sys.executable, "-c", "raise SystemExit(70)"], str(tmp_path))


def test_figures_stand_on_the_page_with_their_goal() -> None:
    figures = {"pairs": 5, "seconds": 1.5, "class_seconds": 4.5, "ratio": 0.33, "peak_mib": 150}
    told = page({"machine": "here", "jobs": {"an 8B": figures}})
    assert "| 5 | 1.50 | 4.50 | 0.33 | 150 | 0.25 of the class |" in told
    assert "DeepSeek" not in told


def test_a_job_without_a_class_has_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.answers.first_answer.processor_seconds", lambda command, home: (2.0, 100.0))
    found = measured(Job(words=("gpt2",), goal="none"), 3, sys.executable)
    assert found == {"pairs": 3, "seconds": 2.0, "class_seconds": None, "ratio": None, "peak_mib": 100}
