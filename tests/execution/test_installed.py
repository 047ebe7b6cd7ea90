"""What is installed is one package: from the repository's own installation, and from a wheel of real files."""

import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("planner", "executor", "reports", "tui")
PROBE = f"""
import importlib.util, json, gpu_plan
bare = [name for name in {PACKAGES} if importlib.util.find_spec(name) is not None]
inner = [importlib.util.find_spec("gpu_plan." + name).origin for name in {PACKAGES}]
print(json.dumps([gpu_plan.__file__, bare, inner]))
"""


def start(folder: Path, *words: str, path: Path | None = None) -> str:
    """What an interpreter in `folder` prints, with `path` as its PYTHONPATH and none without."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = kept if path is None else {**kept, "PYTHONPATH": str(path)}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=1500, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools leaves folders of its own beside what it builds."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*PACKAGES, "src"):
        shutil.copytree(REPOSITORY / name, source / name, symlinks=True, ignore=left_out)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source / name)
    words = ("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder))
    start(folder, *words, str(source))
    (found,) = folder.glob("gpu_plan-*.whl")
    return found


def test_the_repositorys_installation_brings_no_bare_names(tmp_path: Path) -> None:
    """Without PYTHONPATH, and outside the repository: whatever is found is installed."""
    package, bare, inner = json.loads(start(tmp_path, "-c", PROBE))
    assert bare == []
    assert inner == [str(Path(package).parent / name / "__init__.py") for name in PACKAGES]
    assert start(tmp_path, "-m", "gpu_plan", "--version").split()


@pytest.mark.slow
def test_a_wheel_holds_every_file_and_no_link(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    assert not [name for name, mode in held.items() if stat.S_ISLNK(mode)]
    assert {name.partition("/")[0].partition("-")[0] for name in held} == {"gpu_plan"}
    package = REPOSITORY / "src" / "gpu_plan"
    files = [Path(folder) / name for folder, _, names in os.walk(package, followlinks=True) for name in names]
    wanted = {path.relative_to(package.parent).as_posix() for path in files if "__pycache__" not in path.parts}
    assert {Path(name).suffix for name in wanted} >= {".json", ".toml", ".tcss", ".typed", ".py"}
    assert wanted - held.keys() == set()


@pytest.mark.slow
def test_a_wheel_starts_by_itself(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    start(tmp_path, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(target), str(wheel))
    assert {path.name for path in target.iterdir() if "dist-info" not in path.name} <= {"gpu_plan", "bin"}
    assert not [path for path in target.rglob("*") if path.is_symlink()]
    package, bare, inner = json.loads(start(tmp_path, "-c", PROBE, path=target))
    assert package == str(target / "gpu_plan" / "__init__.py")
    assert bare == []
    assert inner == [str(target / "gpu_plan" / name / "__init__.py") for name in PACKAGES]
    assert "EleutherAI/pythia-70m" in start(tmp_path, "-m", "gpu_plan", "models", path=target)
    assert "H100" in start(tmp_path, "-m", "gpu_plan", "gpus", path=target)
