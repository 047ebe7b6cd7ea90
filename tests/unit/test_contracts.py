"""The import contracts in pyproject.toml hold, and no module escapes them by being new."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
JOINING = {
    "planner.cli",
    "planner.commands",
    "planner.__main__",
    "planner.api",
    "planner.api_result",
    "planner.api_words",
}
"""The composition root: the one place that may know both planner and reports."""


def contracts():
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["tool"]["importlinter"]["contracts"]


def modules_of(package):
    folder = ROOT / package
    names = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    return {f"{package}.{name}" for name in names - {"__init__"}}


def test_every_planner_module_is_kept_from_reports():
    found = next(
        contract for contract in contracts() if contract["forbidden_modules"] == ["reports", "executor", "tui"]
    )
    assert set(found["source_modules"]) == modules_of("planner") - JOINING


def test_every_named_module_exists():
    known = {"planner", "reports", "executor", "tui"}.union(*map(modules_of, ("planner", "reports", "executor", "tui")))
    known |= {name for package in ("hardware",) for name in _deeper(package)}
    for contract in contracts():
        named = [*contract.get("source_modules", ()), *contract.get("forbidden_modules", ())]
        named += [name.strip() for layer in contract.get("layers", ()) for name in layer.split(":")]
        assert {name for name in named if name.startswith(("planner", "reports", "executor", "tui"))} <= known


def _deeper(package):
    return {f"planner.{package}.{path.stem}" for path in (ROOT / "planner" / package).glob("*.py")}


def test_contracts_hold():
    tool = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("import-linter is not installed beside this interpreter")
    done = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
