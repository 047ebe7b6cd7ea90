"""How the command ends where nothing else catches it: output that cannot be written, and errors of its own."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_plan import cli
from gpu_plan.planner.errors import ExitCode

_PLANTED = """
import sys
import gpu_plan.cli as cli
def run(words):
    {}
cli._run = run
cli.entry()
"""


def shell(line, tmp_path, **environment):
    """Exit codes of a pipeline, and what it said on stderr; PLAN stands for the command."""
    plan = f"{sys.executable} -P -m gpu_plan"
    script = line.replace("PLAN", plan) + '\ncode="${PIPESTATUS[*]}"; echo $code > ' + str(tmp_path / "codes")
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
        env={**os.environ, "GPU_PLAN_CACHE": str(tmp_path / "cache"), **environment},
    )
    return (tmp_path / "codes").read_text().split(), done.stdout, done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("PLAN gpus --json > /dev/full", "No space left"),
        ("PLAN gpus --json >&-", "closed"),
        ("PLAN gpus --json >&- <&-", "closed"),
        ("PLAN --help > /dev/full", "No space left"),
        ("PYTHONUNBUFFERED=1 PLAN gpus --json > /dev/full", "No space left"),
        ("PLAN models --help > /dev/full", "No space left"),
        ("mkdir gone; cd gone; rmdir ../gone; PLAN gpus", "working directory"),
    ],
)
def test_output_that_cannot_be_written_is_one_line(line, said, tmp_path):
    codes, out, err = shell(line, tmp_path)
    assert codes == ["3"]
    assert out == ""
    assert err.startswith("plan: error: ")
    assert said in err
    assert err.count("\n") == 1


def test_stdout_that_has_not_the_characters(tmp_path):
    program = tmp_path / "shows.py"
    program.write_text(_PLANTED.format("print('4 × 2 · 80 GiB'); return 0"), encoding="utf-8")
    codes, out, err = shell(f"{sys.executable} -P {program}", tmp_path, PYTHONIOENCODING="ascii")
    assert (codes, out) == (["3"], "")
    assert "stdout takes ascii alone" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("line", ["PLAN gpus --json | head -1", "PLAN gpus --json | true", "PLAN --help | true"])
def test_a_reader_that_goes_away_is_told_nothing(line, tmp_path):
    codes, _, err = shell(line, tmp_path)
    assert codes == ["0", "0"]
    assert err == ""


@pytest.mark.parametrize("line", ["PLAN gpus 2>&-", "PLAN gpus 2>/dev/full"])
def test_notes_that_cannot_be_written_change_nothing(line, tmp_path):
    expected = shell("PLAN gpus", tmp_path)
    codes, out, _ = shell(line, tmp_path)
    assert codes == ["0"]
    assert out == expected[1]
    assert "H100" in out


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise MemoryError", "MemoryError"),
        ("run(words)", "RecursionError"),
        ("raise BrokenPipeError(32, 'Broken pipe')", "BrokenPipeError"),
        ("raise ValueError('\\x1b[31mred\\ntwo')", r"ValueError: \x1b[31mred two"),
    ],
)
def test_an_internal_error_is_one_line_and_a_file(code, said, tmp_path):
    program = tmp_path / "planted.py"
    program.write_text(_PLANTED.format(code))
    codes, out, err = shell(f"{sys.executable} -P {program} some 'wor ds'", tmp_path)
    assert codes == ["70"]
    assert out == ""
    assert err.startswith("plan: internal error")
    assert said in err
    assert err.count("\n") == 1
    kept = Path(err.rpartition(" is in ")[2].strip())
    assert kept.is_relative_to(tmp_path / "cache")
    text = kept.read_text()
    assert "Traceback" in text
    assert "'wor ds'" in text
    assert oct(kept.stat().st_mode & 0o777) == "0o600"


@pytest.fixture
def failing(monkeypatch, tmp_path):
    """Runs a command line that ends in this error; gives the exit code."""
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))

    def run(error):
        def raise_it(words):
            raise error

        monkeypatch.setattr(cli, "_run", raise_it)
        return cli.main(["x"])

    return run


def test_without_a_cache_the_traceback_goes_to_temporary_files(failing, capsys, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert failing(KeyError("x")) == 70
    kept = Path(capsys.readouterr().err.rpartition(" is in ")[2].strip())
    assert kept.parent == tmp_path
    assert "KeyError" in kept.read_text()


def test_where_nothing_can_be_written_the_line_says_so(failing, capsys, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    assert failing(KeyError("x")) == 70
    assert "could be written nowhere" in capsys.readouterr().err


def test_tracebacks_do_not_pile_up(failing, tmp_path):
    for _ in range(25):
        failing(KeyError("x"))
    assert len(list((tmp_path / "cache" / "errors").iterdir())) == 20


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EMFILE])
def test_what_the_machine_refuses_is_no_error_of_this_program(failing, capsys, number):
    assert failing(OSError(number, os.strerror(number), "/x/\x1by")) == ExitCode.UNREACHABLE
    err = capsys.readouterr().err
    assert os.strerror(number) in err
    assert r"/x/\x1by" in err
