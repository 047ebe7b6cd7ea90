"""float8 and torch.compile as planned, in real CPU ranks: what computed is seen from inside, and it learns alike."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from gpu_plan.executor.run_folder import list_runs

PLAN = str(Path(sys.executable).parent / "plan")
SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "train.py"
STEPS = 3

pytestmark = pytest.mark.slow


class Ran:
    """One job that has ended."""

    def __init__(self, folder: Path, words: tuple[str, ...], more: dict[str, str]) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ACCELERATE_", "GPU_PLAN_R"))}
        command = [PLAN, "--execute", str(SCRIPT), "--gpus", "2xcpu", *words, "--", "--steps", str(STEPS)]
        done = subprocess.run(
            command,
            cwd=folder,
            env={**kept, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **more},
            capture_output=True,
            text=True,
            timeout=1500,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        self.said = done.stderr
        (run,) = list_runs(folder)
        self.deviations = run.read_run().attempts[-1].deviations
        records = [json.loads((run.path / f"rank-{rank}.json").read_text()) for rank in range(2)]
        self.actual = [record["actual"] for record in records]
        self.losses = [step["loss"] for step in records[0]["steps"]]
        self.config = (run.path / "accelerate.yaml").read_text()


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Runs a job, once."""

    @cache
    def launch(*words: str, **more: str) -> Ran:
        return Ran(tmp_path_factory.mktemp("job"), words, more)

    return launch


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_float8(ran, strategy):
    job = ran("--precision", "fp8-mixed", "--strategy", strategy)
    assert job.said.count("torchao emulates float8 products") == 1
    assert "fp8_backend: AO" in job.config
    assert [actual["mixed_precision"] for actual in job.actual] == ["fp8", "fp8"]
    assert [actual["strategy"] for actual in job.actual] == [strategy, strategy]
    assert job.deviations == ()
    exact = ran("--strategy", "ddp").losses
    assert len(job.losses) == STEPS
    assert job.losses != exact
    # Both learn the same from the same samples, one with fewer digits.
    assert job.losses == pytest.approx(exact, abs=0.05)


def test_compiled(ran):
    job = ran("--strategy", "ddp", "--set", "compile.backend=aot_eager")
    assert "dynamo_backend: AOT_EAGER" in job.config
    assert [actual["compiled"] for actual in job.actual] == [True, True]
    assert job.actual[0]["wrapped_classes"][0] == "OptimizedModule"
    assert job.deviations == ()
    assert job.losses == pytest.approx(ran("--strategy", "ddp").losses, abs=1e-4)


def test_blocks_compiled_in_place(ran):
    job = ran("--strategy", "fsdp", "--set", "compile.backend=aot_eager", "--set", "compile.regional=true")
    assert [actual["compiled"] for actual in job.actual] == [True, True]
    assert job.deviations == ()
    assert job.losses == pytest.approx(ran("--strategy", "ddp").losses, abs=1e-4)


def test_a_compiler_that_is_switched_off_is_a_deviation(ran):
    """torch.compile then wraps the model all the same, and calls it as it is."""
    job = ran("--strategy", "ddp", "--set", "compile.backend=aot_eager", TORCHDYNAMO_DISABLE="1")
    assert [actual["compiled"] for actual in job.actual] == [False, False]
    assert job.deviations == ("nothing was compiled, planned is torch.compile with the backend aot_eager",)
