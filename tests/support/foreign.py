"""A user's project that holds modules named like ours, like what we need, and like the standard library's."""

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions
from pathlib import Path

from gpu_plan.planner.neighbours import NEEDED

OURS = (
    "planner/__init__.py", "executor.py", "reports/__init__.py", "tui/__init__.py", "gpu_plan/__init__.py",
    "transformers/__init__.py", "sitecustomize.py", "usercustomize.py",
)  # fmt: skip
_PRESENT = {name for name in sys.stdlib_module_names if name in sys.builtin_module_names or PathFinder.find_spec(name)}
PLANTED = (*OURS, *(f"{name}.py" for name in sorted((_PRESENT | NEEDED) - {"gpu_plan", "transformers"})))
"""All of the standard library as it is here, and all that this package needs."""
TRAINING = """
from datasets.rows import ROWS
from my_helper import WIDTH
import torch
from accelerate import Accelerator

accelerator = Accelerator()
model = torch.nn.Linear(WIDTH, 16)
optimizer = torch.optim.AdamW(model.parameters())
loader = torch.utils.data.DataLoader(torch.randn(ROWS, WIDTH), batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    loss = model(batch).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
"""
"""Trains on what its neighbours say."""
TELLING = """
import subprocess, sys
from pathlib import Path
if accelerator.is_main_process:
    told = Path(__file__).with_name("told.py")
    subprocess.run([sys.executable, str(told), str(accelerator.num_processes)], check=True)
"""
"""Starts another script beside it, which has neighbours too."""
TOLD = """
import sys
from my_helper import WIDTH
print("told by", sys.argv[1], "processes of", WIDTH)
"""
PARAMETERS = 24 * 16 + 16
"""Of the script's model, by the width that only its neighbour knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """Where it lies, and what came of it."""

    script: Path
    directory: Path
    """The working directory."""
    marker: Path
    """Where planted modules that are imported write their files' names."""

    def plan(self, *words: str, seconds: float = 1500) -> subprocess.CompletedProcess[str]:
        """`plan` in the working directory; without `-P`, python itself would import the types.py that lies there."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "gpu_plan", *words],
            cwd=self.directory,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        self.check()
        return done

    def check(self) -> None:
        """No planted module was imported."""
        assert not self.marker.exists(), self.marker.read_text()


def make_project(folder: Path, *, together: bool) -> Project:
    """With planted modules beside the script and in the working directory, which are one folder if `together`."""
    beside = folder / "project"
    directory = beside if together else folder / "work"
    marker = folder / "imported"
    for place in {beside, directory}:
        plant(place, marker)
    (beside / "datasets").mkdir()
    # Accelerate asks the package of this name for a class.
    (beside / "datasets" / "__init__.py").write_text("class IterableDataset: ...\n")
    (beside / "datasets" / "rows.py").write_text("ROWS = 16\n")
    (beside / "my_helper.py").write_text("WIDTH = 24\n")
    (beside / "told.py").write_text(TOLD)
    script = beside / "train.py"
    script.write_text(TRAINING + TELLING)
    return Project(script=script, directory=directory, marker=marker)


def everything_installed() -> tuple[str, ...]:
    """Files named like every module that any start here could import."""
    names = {*packages_distributions(), *sys.stdlib_module_names}
    return (
        *OURS,
        *(f"{name}.py" for name in sorted(names) if name.isidentifier() and f"{name}/__init__.py" not in OURS),
    )


def plant(folder: Path, marker: Path, names: Iterable[str] = PLANTED) -> None:
    """Modules that say so, and raise, when they are imported."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"open({str(marker)!r}, 'a').write(__file__ + '\\n')\nraise RuntimeError('not to be imported')\n"
        )
