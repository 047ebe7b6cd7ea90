"""Every package that is imported is declared, where it is needed."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("src", "planner", "executor", "reports", "tui")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def deptry(project):
    tool = shutil.which("deptry", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("deptry is not installed beside this interpreter")
    words = [tool, "--no-ansi", "--config", str(project), *FOLDERS]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)


def test_metadata_says_nothing_that_is_not_so():
    """A page that nobody has made is no address: until the project has one, it names none."""
    assert "OWNER" not in str(PROJECT)
    assert all(address.startswith("https://") for address in PROJECT.get("urls", {}).values())


def test_imports_are_declared():
    done = deptry(ROOT / "pyproject.toml")
    assert done.returncode == 0, done.stderr


def test_an_import_that_is_not_declared_is_found(tmp_path):
    text = (ROOT / "pyproject.toml").read_text()
    spoilt = tmp_path / "pyproject.toml"
    spoilt.write_text("\n".join(line for line in text.splitlines() if '"psutil>=' not in line))
    done = deptry(spoilt)
    assert done.returncode == 1
    assert "DEP003 'psutil' imported but" in done.stderr


def test_the_extra_for_all_names_every_extra():
    extras = PROJECT["optional-dependencies"]
    (all_of_them,) = extras["all"]
    named = all_of_them.partition("[")[2].removesuffix("]").split(",")
    assert set(named) == set(extras) - {"all", "dev"}
