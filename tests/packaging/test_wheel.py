"""The wheel as a user installs it: a clean environment, outside the repository, with each extra and without.

These ask a package index, as no other test does.
"""

import tomllib
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT, Environment, build, make

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]  # Installs gigabytes, from wherever the index is.

MODEL = "EleutherAI/pythia-70m"
SHIPPED = "meta-llama/Llama-3.1-8B"
PINNED = (MODEL, "--gpus", "1xT4", "--pin")
PLANNED = (SHIPPED, "--gpus", "8xH100", "--strategy", "fsdp")
"""Without torch."""
SCRIPT = """
import torch
from accelerate import Accelerator

accelerator = Accelerator()
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.AdamW(model.parameters())
loader = torch.utils.data.DataLoader(torch.randn(8, 16), batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    accelerator.backward(model(batch).square().mean())
    optimizer.step()
    optimizer.zero_grad()
"""
USES: dict[str, tuple[str, ...]] = {
    "trace": PINNED,
    "peft": (*PINNED, "--peft", "lora"),
    "fp8": (MODEL, "--gpus", "1xH100", "--pin", "--precision", "fp8-mixed"),
    "plots": (*PLANNED, "--plot", "step.png"),
    "frames": (*PLANNED, "--format", "csv"),
    "tui": ("explore", *PLANNED),
    "deepspeed": ("train.py", "--gpus", "2xcpu", "--pin", "--strategy", "zero2", "--execute", "train.py"),
}
"""A command that each extra is for."""
MISSING = {extra: (2, f"gpu-plan[{extra}]") for extra in USES} | {"deepspeed": (2, "gpu-plan[trace]")}
"""Its exit code and words without the extra; a script is traced before anything is launched."""
IMPORTS = {
    "trace": "gpu_plan.planner.trace.session, torch, transformers, accelerate",
    "peft": "gpu_plan.planner.model.adapt, peft",
    "fp8": "gpu_plan.planner.model.float8, torchao.float8",
    "plots": "gpu_plan.reports.plots.timeline, gpu_plan.reports.plots.sweep",
    "frames": "gpu_plan.reports.tables.frames, pandas",
    "tui": "gpu_plan.tui.app",
    "deepspeed": "deepspeed, gpu_plan.executor.checkpoints.convert.universal",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Source distribution and wheel."""
    return build(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def base(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel without any extra."""
    environment = make(tmp_path_factory.mktemp("base"), "base")
    environment.install(built[1])
    (environment.home / "train.py").write_text(SCRIPT)
    return environment


def test_every_extra_is_tried() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(USES) == set(IMPORTS) == set(extras) - {"dev", "all"}


def test_without_extras_it_plans(base: Environment) -> None:
    helped = base.plan("--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert helped.stdout.startswith("plan: how a PyTorch")
    listed = base.plan("models")
    assert listed.returncode == 0
    assert MODEL in listed.stdout
    planned = base.plan(*PLANNED)
    assert planned.returncode == 0, planned.stderr
    assert "8.03B parameters" in planned.stdout
    assert "FITS" in planned.stdout
    where = base.run(base.python, "-c", "import gpu_plan; print(gpu_plan.__file__)").stdout
    assert Path(where.strip()).is_relative_to(base.packages)


@pytest.mark.parametrize("extra", USES)
def test_without_an_extra_one_line_names_it(base: Environment, extra: str) -> None:
    done = base.plan(*USES[extra])
    code, words = MISSING[extra]
    assert done.returncode == code, done.stdout + done.stderr
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("extra", USES)
def test_with_an_extra_it_works(
    base: Environment, built: tuple[Path, Path], extra: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    environment = make(tmp_path_factory.mktemp(extra), extra, above=base)
    environment.install("--no-deps", "--ignore-installed", built[1])
    environment.install(f"gpu-plan[{extra}] @ {built[1].as_uri()}")
    (environment.home / "train.py").write_text(SCRIPT)
    imported = environment.run(environment.python, "-c", f"import {IMPORTS[extra]}")
    assert imported.returncode == 0, imported.stderr
    done = environment.plan(*USES[extra])
    assert MISSING[extra][1] not in done.stderr
    if extra == "tui":
        assert "the explorer needs a terminal" in done.stderr
        return
    assert done.returncode == 0, done.stdout + done.stderr
