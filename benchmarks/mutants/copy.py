"""A scratch copy of the project, in which one file at a time is changed: the tree itself never is (I/O)."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.mutants.mutant import ROOT, Mutant


def copied(into: Path) -> Path:
    """What git tracks, or would, as it is on the disk; links stay links."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, into / name
        if source.is_symlink() or source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return into


@contextmanager
def planted(copy: Path, mutant: Mutant) -> Iterator[None]:
    """The copy with this one fault in it, and without it again afterwards; what was compiled of either is dropped."""
    path = copy / mutant.path
    whole = path.read_text()
    try:
        path.write_text(mutant.changed(whole))
        _forget_compiled(path)
        yield
    finally:
        path.write_text(whole)
        _forget_compiled(path)


def _forget_compiled(path: Path) -> None:
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()
