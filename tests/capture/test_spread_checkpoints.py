"""A script that resumes what ranks of tensor parallel saved is captured: the optimizer's parts are theirs."""

from pathlib import Path
from types import SimpleNamespace

from gpu_plan.executor.runner.parallel.checkpoints import OPTIMIZER
from gpu_plan.planner.capture.answers.trainers.transformers import SPREAD_OPTIMIZER, parts_are_the_ranks


def test_parts_of_an_optimizer_are_left_to_the_ranks(tmp_path: Path) -> None:
    assert OPTIMIZER.format(0) == SPREAD_OPTIMIZER
    read: list[str | None] = []

    class Trainer:
        def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
            read.append(checkpoint)

    parts_are_the_ranks(SimpleNamespace(Trainer=Trainer))
    spread, whole = tmp_path / "spread", tmp_path / "whole"
    (spread / SPREAD_OPTIMIZER).mkdir(parents=True)
    for folder in (str(spread), str(whole), None):
        Trainer()._load_optimizer_and_scheduler(folder)
    assert read == [str(whole), None]
