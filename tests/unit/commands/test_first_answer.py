"""The benchmark of first answers: what it asks is understood, and the time of all of a plan's processes is counted."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.answers import first_answer
from benchmarks.answers.first_answer import JOBS, Job, Took, measured, most_mib, page, took
from gpu_plan.planner.options.words import main_parser
from gpu_plan.verbs import VERBS

FORKS = """
import os, time
held = b'x' * 2**26
if os.fork():
    os.wait()
else:
    while time.process_time() < 0.3: pass
    mine = b'y' * 2**26
    time.sleep(0.5)
    os._exit(0)
"""


def test_every_job_is_a_command_line() -> None:
    for job in JOBS.values():
        main_parser(VERBS).parse_args(job.words)


def test_what_a_process_forks_is_counted_with_it(tmp_path: Path) -> None:
    found = took([sys.executable, "-c", FORKS], str(tmp_path))
    assert found.processor > 0.25
    assert found.clock >= 0.75


def test_what_processes_share_is_counted_once(tmp_path: Path) -> None:
    assert 128 < most_mib([sys.executable, "-c", FORKS], str(tmp_path)) < 192


def test_an_answer_that_ends_in_an_error_is_no_figure(tmp_path: Path) -> None:
    assert took([sys.executable, "-c", "raise SystemExit(1)"], str(tmp_path)).processor > 0
    with pytest.raises(subprocess.CalledProcessError):
        took([sys.executable, "-c", "raise SystemExit(70)"], str(tmp_path))


def test_figures_stand_on_the_page_with_their_goal() -> None:
    clock = {"clock_seconds": 1.2, "class_clock_seconds": 5.0, "clock_ratio": 0.24}
    figures = {"pairs": 5, **clock, "seconds": 1.5, "class_seconds": 4.5, "ratio": 0.33, "peak_mib": 150}
    told = page({"machine": "here", "jobs": {"an 8B": figures}})
    assert "| 5 | 1.20 | 5.00 | 0.24 | 1.50 | 4.50 | 0.33 | 150 | 0.25 of the class, of its time |" in told
    assert "DeepSeek" not in told


def test_figures_of_an_earlier_run_have_no_clock() -> None:
    figures = {"pairs": 5, "seconds": 1.5, "class_seconds": 4.5, "ratio": 0.33, "peak_mib": 150}
    assert "| 5 |  |  |  | 1.50 | 4.50 | 0.33 | 150 |" in page({"machine": "here", "jobs": {"an 8B": figures}})


def test_a_job_without_a_class_has_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_answer, "took", lambda command, home: Took(1.0, 2.0))
    monkeypatch.setattr(first_answer, "most_mib", lambda command, home: 100.0)
    found = measured(Job(words=("gpt2",), goal="none"), 3, sys.executable)
    assert (found["clock_seconds"], found["seconds"], found["peak_mib"]) == (1.0, 2.0, 100)
    assert {found[name] for name in ("class_clock_seconds", "clock_ratio", "class_seconds", "ratio")} == {None}
