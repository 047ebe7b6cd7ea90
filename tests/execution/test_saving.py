"""Scripts that know nothing of the protocol fulfil it; what is torn is never taken for complete."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_plan.executor import names
from gpu_plan.executor.checkpoints.find import newest_complete, search
from tests.execution.launches import ROOT, directly, launch
from tests.support.small_disk import small_disk

CPU = {"ACCELERATE_USE_CPU": "true"}


def _complete(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.rglob("plan-checkpoint.json")}


@pytest.mark.slow
def test_a_killed_save_leaves_the_last_complete_one_and_the_next_attempt_goes_on(tmp_path: Path) -> None:
    """`total_limit` 1: accelerate would delete the only checkpoint before it writes the next."""
    first = directly(tmp_path, "saving.py", "numbered", "5", "3", environment=CPU)
    assert first.code == -9, first.output
    found = newest_complete([tmp_path / "project"], run_id=tmp_path.name)
    assert found is not None
    assert (found.path.name, found.manifest.step, found.manifest.samples) == ("checkpoint_1", 2, 8)
    assert _complete(tmp_path / "project") == {"checkpoint_1"}
    assert (tmp_path / "project" / "checkpoints" / "checkpoint_2").is_dir(), "begun, and torn"

    resume = CPU | {names.RESUME_FROM: str(found.path), names.ATTEMPT: "2"}
    second = directly(tmp_path, "saving.py", "numbered", "2", environment=resume)
    assert second.code == 0, second.output
    assert [step.step for step in second.ranks[0].steps] == [3, 4]
    last = newest_complete([tmp_path / "project"])
    assert last is not None
    assert (last.path.name, last.manifest.step, last.manifest.samples) == ("checkpoint_3", 4, 16)
    assert sorted(os.listdir(tmp_path / "project" / "checkpoints")) == ["checkpoint_3"]
    assert len(os.listdir(tmp_path / "project" / "torn")) == 1


@pytest.mark.slow
def test_a_first_rank_that_saves_alone_does_not_wait_for_the_others(tmp_path: Path) -> None:
    ended = launch(tmp_path, "saving.py", "main", "3", strategy="ddp", ranks=2)
    assert ended.code == 0, ended.output
    assert _complete(tmp_path / "project") == {"step-1", "step-2", "step-3"}
    found = newest_complete([tmp_path / "project"])
    assert found is not None
    assert (found.manifest.step, found.manifest.world_size) == (3, 2)
    assert not found.manifest.random_states
    assert found.manifest.samples == 3 * 2 * 4
    assert ended.ranks[0].checkpoints[-1].endswith("step-3")
    assert ended.ranks[1].checkpoints == ()


@pytest.mark.slow
def test_a_folder_saved_over_again_is_torn_meanwhile(tmp_path: Path) -> None:
    ended = launch(tmp_path, "saving.py", "latest", "4", "3", strategy="ddp", ranks=2)
    assert ended.code != 0
    assert newest_complete([tmp_path]) is None
    assert [each.path.name for each in search([tmp_path / "project"]).skipped] == ["latest"]


@pytest.mark.slow
def test_a_full_disk_leaves_the_last_complete_one(tmp_path: Path) -> None:
    """Two checkpoints fit on the disk: the third fails as the kernel says."""
    with small_disk(24) as small:
        run = tmp_path / "run"
        run.mkdir()
        words = ["--steps", "8", "--save_steps", "2", "--keep", "9", "--output_dir", str(small)]
        ended = directly(run, str(ROOT / "examples" / "train.py"), *words, environment=CPU)
        assert ended.code == 1
        assert any("failed on a full disk" in note for note in ended.ranks[0].notes)
        found = newest_complete([small], run_id="run")
        assert found is not None
        assert found.manifest.step == 4
        assert [each.path.name for each in search([small]).skipped] == ["step-6"]


@pytest.mark.slow
def test_without_the_runner_the_examples_are_as_they_are(tmp_path: Path) -> None:
    """No record, no manifest, and the same losses."""
    script = str(ROOT / "examples" / "train.py")
    words = ["--steps", "2", "--save_steps", "2", "--output_dir", str(tmp_path / "out")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_PLAN_")}
    plain = subprocess.run(
        [sys.executable, script, *words], cwd=tmp_path, env=kept | CPU, capture_output=True, text=True
    )
    assert plain.returncode == 0, plain.stderr
    assert _complete(tmp_path) == set()
    watched = tmp_path / "watched"
    watched.mkdir()
    under = directly(watched, script, "--steps", "2", "--save_steps", "2", environment=CPU)
    assert [line for line in under.output.splitlines() if line.startswith("step")] == plain.stdout.splitlines()
    assert _complete(watched) == {"step-2"}
