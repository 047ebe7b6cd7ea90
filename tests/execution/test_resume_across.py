"""A checkpoint of one strategy goes on under another: the losses of a run that never stopped, the same samples.

Four steps are saved under each strategy; each crossing goes on with four more. All runs have the same global batch.
"""

import re
from pathlib import Path

import pytest

from executor import names
from executor.checkpoints.find import newest_complete, open_checkpoint
from executor.checkpoints.resume import decide_resume, make_ready
from tests.execution.launches import ROOT, launch

STEPS = 6
TOLERANCE = 2e-4
"""Of losses around 6, after reductions in another order and, for AdamW, divisions by small roots: seen below 3e-5."""


def run(folder: Path, strategy: str, ranks: int, resume_from: Path | None = None) -> list[float]:
    """Losses of the steps that were run."""
    folder.mkdir(parents=True)
    environment = {"SAMPLES_FILE": str(folder / "samples")}
    if resume_from is not None:
        environment |= {names.RESUME_FROM: str(resume_from), names.ATTEMPT: "2"}
    words = ["--steps", str(STEPS), "--save_steps", "3", "--keep", "9", "--batch_size", str(8 // ranks)]
    ended = launch(
        folder,
        "recorded.py",
        str(ROOT / "examples" / "train.py"),
        *words,
        strategy=strategy,
        ranks=ranks,
        environment=environment,
    )
    assert ended.code == 0, ended.output
    return [float(loss) for loss in re.findall(r"^step \d+: loss ([\d.]+)$", ended.output, re.MULTILINE)]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    losses = run(tmp_path_factory.mktemp("reference") / "run", "single", 1)
    assert len(losses) == STEPS
    return losses


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory):
    """Checkpoints of step 3, made when they are first asked for."""
    made: dict[tuple[str, int], Path] = {}

    def of(strategy: str, ranks: int) -> Path:
        if (strategy, ranks) not in made:
            folder = tmp_path_factory.mktemp(strategy) / "run"
            run(folder, strategy, ranks)
            made[strategy, ranks] = folder / "checkpoints" / "step-3"
        return made[strategy, ranks]

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
    ids=lambda pair: f"{pair[0]}-{pair[1]}",
)
def test_goes_on_under_another_plan(before, after, saved, reference, tmp_path: Path) -> None:
    source = saved(*before)
    files = sorted((path, path.stat().st_mtime_ns) for path in source.rglob("*"))
    checkpoint = open_checkpoint(source)
    resume = decide_resume(checkpoint, *after)
    assert resume.refused is None
    ready = make_ready(resume, tmp_path / "converted")
    losses = run(tmp_path / "run", *after, resume_from=ready)
    assert losses == pytest.approx(reference[3:], abs=TOLERANCE)
    end = newest_complete([tmp_path / "run"])
    assert end is not None
    assert (end.manifest.step, end.manifest.samples) == (STEPS, STEPS * 8)
    assert sorted((path, path.stat().st_mtime_ns) for path in source.rglob("*")) == files, "the original is untouched"
    if resume.conversion is not None:
        assert open_checkpoint(ready).manifest.converted_from == str(source)
