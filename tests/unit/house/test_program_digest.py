"""Entries of the cache belong to what the program's files say, wherever and whenever they were written."""

import os
import shutil
from pathlib import Path

import pytest

from gpu_plan.planner import cache_dir

CODE = "value = 1\n"
OTHER = "value = 2\n"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of code, and an empty cache."""
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "program" / "room"
    folder.mkdir(parents=True)
    (folder / "one.py").write_text(CODE)
    (folder / "facts.toml").write_text("a = 1\n")
    return folder.parent


def digest(root: Path) -> str:
    return cache_dir.program_digest.__wrapped__(root)


def test_other_code_of_the_same_size_and_time_has_another_digest(program: Path) -> None:
    """As checkouts whose files all bear one date have it."""
    before, path = digest(program), program / "room" / "one.py"
    stat = path.stat()
    path.write_text(OTHER)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    assert digest(program) != before


def test_a_copy_and_what_was_touched_share_a_digest(program: Path, tmp_path: Path) -> None:
    """As an installation of the same wheel on a machine of another day, to which the cache was brought."""
    before = digest(program)
    os.utime(program / "room" / "one.py", ns=(1, 1))
    assert digest(program) == before
    shutil.copytree(program, tmp_path / "elsewhere")
    assert digest(tmp_path / "elsewhere") == before


def test_a_file_that_moves_changes_it(program: Path) -> None:
    before = digest(program)
    (program / "room" / "one.py").rename(program / "one.py")
    assert digest(program) != before


def test_files_are_read_once(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = cache_dir._content

    def content(files: list[str], root: int) -> str:
        read.append(len(files))
        return real(files, root)

    monkeypatch.setattr(cache_dir, "_content", content)
    assert digest(program) == digest(program)
    assert read == [2]


def test_a_damaged_entry_and_a_cache_that_cannot_be_written_change_nothing(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest(program)
    (kept,) = (tmp_path / "cache" / "programs").iterdir()
    kept.write_bytes(b"somebody else's")
    assert digest(program) == before
    monkeypatch.setenv("GPU_PLAN_CACHE", str(program / "room" / "one.py"))
    assert digest(program) == before
