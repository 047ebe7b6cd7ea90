"""A checkpoint of one strategy goes on under another: the losses of a run that never stopped, the same samples.

Three steps are saved under each strategy; each crossing does the next three. All runs have the same global batch.
"""

import re
from pathlib import Path

import pytest

from gpu_plan.executor import names
from gpu_plan.executor.checkpoints.find import newest_complete, open_checkpoint
from gpu_plan.executor.checkpoints.resume import decide_resume, make_ready
from tests.execution.launches import ROOT, launch

STEPS = 6
TOLERANCE = 2e-4
"""Of losses around 6: reductions happen in another order, and AdamW divides by small roots."""


PRINTED = 6e-4
"""The Trainer prints four digits."""
LOOP, TRAINER = "train.py", "train_trainer.py"


def run(folder: Path, script: str, strategy: str, ranks: int, resume_from: Path | None = None) -> list[float]:
    """Losses of the steps that were run."""
    folder.mkdir(parents=True)
    environment = {"SAMPLES_FILE": str(folder / "samples")}
    if resume_from is not None:
        environment |= {names.RESUME_FROM: str(resume_from), names.ATTEMPT: "2"}
    words = ["--steps", str(STEPS), "--save_steps", "3", "--keep", "9", "--batch_size", str(8 // ranks)]
    if script == TRAINER:
        words = ["--max_steps", str(STEPS), "--save_strategy", "steps", "--save_steps", "3"]
        words += ["--per_device_train_batch_size", str(8 // ranks)]
    ended = launch(
        folder,
        "recorded.py",
        str(ROOT / "examples" / script),
        *words,
        strategy=strategy,
        ranks=ranks,
        environment=environment,
    )
    assert ended.code == 0, ended.output
    return [float(loss) for loss in re.findall(r"(?:^step \d+: loss |\{'loss': ')([\d.]+)", ended.output, re.MULTILINE)]


def shown(pair: tuple[str, int]) -> str:
    return f"{pair[0]}-{pair[1]}"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory):
    """Runs that never stop: the checkpoint of step 3, and all losses; made when they are first asked for."""
    made: dict[tuple[str, str, int], tuple[Path, list[float]]] = {}

    def of(script: str, strategy: str, ranks: int) -> tuple[Path, list[float]]:
        key = (script, strategy, ranks)
        if key not in made:
            folder = tmp_path_factory.mktemp(strategy) / "run"
            losses = run(folder, *key)
            assert len(losses) == STEPS
            made[key] = folder / "checkpoints" / ("step-3" if script == LOOP else "checkpoint-3"), losses
        return made[key]

    return of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("ddp", 2), ("single", 1)),
        (("ddp", 2), ("fsdp", 2)),
        (("fsdp", 2), ("single", 1)),
        (("fsdp", 2), ("ddp", 2)),
        (("fsdp", 2), ("fsdp", 4)),
        (("zero2", 2), ("zero2", 1)),
        (("zero2", 2), ("zero1", 2)),
        (("zero2", 2), ("zero3", 2)),
        (("zero3", 2), ("zero3", 1)),
        (("fsdp1", 2), ("fsdp1", 1)),
    ],
    ids=shown,
)
def test_goes_on_under_another_plan(before, after, saved, tmp_path: Path) -> None:
    go_on(LOOP, before, after, saved, tmp_path, TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(("ddp", 2), ("fsdp", 2)), (("fsdp", 2), ("ddp", 2))], ids=shown)
def test_a_trainer_goes_on_under_another_plan(before, after, saved, tmp_path: Path) -> None:
    go_on(TRAINER, before, after, saved, tmp_path, PRINTED)


def go_on(script, before, after, saved, tmp_path: Path, tolerance: float) -> None:
    source, reference = saved(script, *before)
    files = sorted((path, path.stat().st_mtime_ns) for path in source.rglob("*"))
    checkpoint = open_checkpoint(source)
    resume = decide_resume(checkpoint, *after)
    assert resume.refused is None
    ready = make_ready(resume, tmp_path / "converted")
    losses = run(tmp_path / "run", script, *after, resume_from=ready)
    assert losses == pytest.approx(reference[3:], abs=tolerance)
    end = newest_complete([tmp_path / "run"])
    assert end is not None
    assert (end.manifest.step, end.manifest.samples) == (STEPS, STEPS * 8)
    assert sorted((path, path.stat().st_mtime_ns) for path in source.rglob("*")) == files, "the original is untouched"
    if resume.conversion is not None:
        assert open_checkpoint(ready).manifest.converted_from == str(source)
