"""A job that is killed and resumed equals one that was not: the same samples, bit for bit the same state."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from gpu_plan.executor import names
from gpu_plan.executor.checkpoints.find import newest_complete
from tests.execution.checkpoint_content import differing, tensors
from tests.execution.launches import ROOT, Launched, launch

STEPS, SAVED, ACCUMULATION = 6, 4, 2
LOOP = ("--steps", str(STEPS), "--save_steps", "2", "--keep", "9")
TRAINER = ("--max_steps", str(STEPS), "--save_strategy", "steps", "--save_steps", "2", "--save_total_limit", "1")


MICRO_BATCHES = re.compile(r"random_states_\d+\.pkl/step")
NO_STATE = ("training_args.bin",)
"""The Trainer's record of its arguments, which name folders. Accelerate's count of micro batches (`step` of its random
states) begins anew too; it matters within an accumulation only."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One example, so run that a step takes eight samples of all ranks together; with dropout, which tells whether
    random states are restored too."""

    script: str
    strategy: str

    @property
    def ranks(self) -> int:
        return 1 if self.strategy == "single" else 2

    def run(
        self,
        folder: Path,
        *extra: str,
        accumulation: int = ACCUMULATION,
        die_in: str = "",
        dropout: float = 0.1,
        resume_from: Path | None = None,
    ) -> Launched:
        micro_batch = str(8 // self.ranks // accumulation)
        batch = "--batch_size" if self.script == "train.py" else "--per_device_train_batch_size"
        words = LOOP if self.script == "train.py" else TRAINER
        environment = {"SAMPLES_FILE": str(folder / "samples"), "DIE_IN": die_in}
        if resume_from is not None:
            environment |= {names.RESUME_FROM: str(resume_from), names.ATTEMPT: "2"}
        folder.mkdir(parents=True, exist_ok=True)
        config = json.loads((ROOT / "examples" / "tiny-llama" / "config.json").read_text())
        model = folder.parent / "model"
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text(json.dumps(config | {"attention_dropout": dropout, "num_hidden_layers": 2}))
        return launch(
            folder,
            "recorded.py",
            str(ROOT / "examples" / self.script),
            *words,
            *("--model", str(model), batch, micro_batch, "--gradient_accumulation_steps", str(accumulation), *extra),
            strategy=self.strategy,
            ranks=self.ranks,
            # The Trainer accumulates itself.
            accumulation=accumulation if self.script == "train.py" or self.strategy.startswith("zero") else 1,
            environment=environment,
        )


def steps_of(folder: Path, ranks: int, accumulation: int) -> list[list[str]]:
    """Samples of all ranks together by optimizer step, sorted: a step is a sum over them."""
    by_rank = [
        [json.loads(line) for line in (folder / f"samples-{rank}").read_text().splitlines()] for rank in range(ranks)
    ]
    steps = []
    for first in range(0, len(by_rank[0]), accumulation):
        rows = [row for lines in by_rank for batch in lines[first : first + accumulation] for row in batch]
        steps.append(sorted(rows))
    return steps


def crash_and_resume(job: Job, tmp_path: Path) -> None:
    """Kills a rank in the sixth step; the attempt after it goes on from the fourth."""
    whole, broken, resumed = tmp_path / "whole", tmp_path / "broken", tmp_path / "resumed"
    first = job.run(whole)
    assert first.code == 0, first.output
    if job == Job(script="train_trainer.py", strategy="single"):
        assert [path.name for path in (whole / "checkpoints").iterdir()] == ["checkpoint-6"], "one is to be kept"
    died = job.run(broken, die_in=f"{job.ranks - 1}:{(STEPS - 1) * ACCUMULATION + 1}")
    assert died.code != 0
    found = newest_complete([broken], run_id="broken")
    assert found is not None
    assert (found.manifest.step, found.manifest.samples) == (SAVED, SAVED * 8)
    second = job.run(resumed, resume_from=found.path)
    assert second.code == 0, second.output
    assert [step.step for step in second.ranks[0].steps] == [5, 6]

    expected = steps_of(whole, job.ranks, ACCUMULATION)
    assert len({row for step in expected for row in step}) == STEPS * 8
    assert expected[:SAVED] == steps_of(broken, job.ranks, ACCUMULATION)[:SAVED]
    assert expected[SAVED:] == steps_of(resumed, job.ranks, ACCUMULATION)
    ends = [newest_complete([folder]) for folder in (whole, resumed)]
    assert all(end is not None and end.manifest.step == STEPS and end.manifest.samples == STEPS * 8 for end in ends)
    different = differing(*(end.path for end in ends if end is not None))
    assert [name for name in different if not name.startswith(NO_STATE) and not MICRO_BATCHES.fullmatch(name)] == []


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["single"])
def test_killed_and_resumed_is_the_same(strategy: str, tmp_path: Path) -> None:
    crash_and_resume(Job(script="train.py", strategy=strategy), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "fsdp1", "zero1", "zero2", "zero3"])
def test_killed_and_resumed_is_the_same_on_ranks(strategy: str, tmp_path: Path) -> None:
    crash_and_resume(Job(script="train.py", strategy=strategy), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["single", "ddp", "fsdp", "zero2"])
def test_a_killed_trainer_goes_on_though_its_script_is_told_nothing(strategy: str, tmp_path: Path) -> None:
    crash_and_resume(Job(script="train_trainer.py", strategy=strategy), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp"])
def test_another_accumulation_goes_on_at_the_same_sample(strategy: str, tmp_path: Path) -> None:
    """Micro batch 2 twice becomes 1 four times: the same samples in every step, the same state but for rounding."""
    job = Job(script="train.py", strategy=strategy)
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    assert job.run(whole, dropout=0.0).code == 0
    second = job.run(resumed, dropout=0.0, accumulation=4, resume_from=whole / "checkpoints" / "step-2")
    assert second.code == 0, second.output
    assert steps_of(whole, 2, ACCUMULATION)[2:] == steps_of(resumed, 2, 4)
    one, other = (tensors(folder / "checkpoints" / f"step-{STEPS}") for folder in (whole, resumed))
    for name, value in one.items():
        if name.startswith("model.safetensors"):
            torch.testing.assert_close(other[name], value, rtol=2e-4, atol=2e-6)
