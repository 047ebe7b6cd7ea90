"""The import contracts in pyproject.toml hold, and no package is a heap."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = (ROOT / "planner", ROOT / "executor", ROOT / "reports", ROOT / "tui", ROOT / "src" / "gpu_plan")
MOST_MODULES = 12


def folders():
    return sorted({path.parent for package in PACKAGES for path in package.rglob("*.py")})


def test_contracts_hold():
    tool = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("import-linter is not installed beside this interpreter")
    done = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: str(folder.relative_to(ROOT)))
def test_a_package_holds_at_most_a_dozen_modules_and_says_what_they_are(folder):
    modules = [path for path in folder.glob("*.py") if not path.name.startswith("__")]
    assert len(modules) <= MOST_MODULES, sorted(path.name for path in modules)
    text = (folder / "__init__.py").read_text(encoding="utf-8")
    assert text.startswith('"""'), "an __init__ says what lives there"
