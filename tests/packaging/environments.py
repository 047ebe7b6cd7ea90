"""Clean environments, made from a package index: the source distribution, the wheel, and what is installed of them."""

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE = 1500
"""Seconds for one command, a package index that is slow included."""
_OURS = ("PYTHON", "GPU_PLAN", "HF_", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A virtual environment, and the folder outside the repository in which its commands run."""

    path: Path
    home: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.path / "bin" / "python"

    @property
    def packages(self) -> Path:
        """Where its packages are."""
        return self.path / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """One command with nothing of this process's environment that could help it."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        clean |= {"HOME": str(self.home), "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [str(word) for word in words], cwd=self.home, env=clean, capture_output=True, text=True, timeout=PATIENCE
        )

    def plan(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command that is installed."""
        return self.run(self.path / "bin" / "plan", *words)

    def install(self, *words: object) -> None:
        """`pip install`, held to the versions that the project is tried with."""
        done = self.run(self.python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", *words)
        assert done.returncode == 0, done.stderr[-4000:]


def make(folder: Path, name: str, *, above: Environment | None = None) -> Environment:
    """A new environment; one `above` another sees its packages too, and installs none of them again."""
    path, home = folder / name, folder / f"{name}-home"
    home.mkdir()
    venv.create(path, with_pip=True, symlinks=True)
    made = Environment(path=path, home=home)
    if above is not None:
        (made.packages / "above.pth").write_text(f"{above.packages}\n")
    return made


def build(folder: Path) -> tuple[Path, Path]:
    """Source distribution and wheel of the files under version control; the wheel is made from the former."""
    source, out = folder / "source", folder / "dist"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if os.path.lexists(ROOT / name):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name, follow_symlinks=False)
    builder = make(folder, "builder")
    builder.install("build")
    done = builder.run(builder.python, "-m", "build", "--outdir", out, source)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    (archive,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return archive, wheel
