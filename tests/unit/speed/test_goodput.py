"""What failures and checkpoints take: published clusters, and what can never happen."""

from unittest.mock import Mock

import pytest

from gpu_plan.planner.job.answer import _saved
from gpu_plan.planner.search.search import Found
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.speed.goodput import goodput


def test_llama_3_loses_about_a_tenth_and_fails_as_often_as_published() -> None:
    """419 unexpected interruptions in 54 days on 16,384 H100, more than 90 % effective time (arXiv 2407.21783)."""
    found = goodput(hours=54 * 24, devices=16_384, nodes=2_048, checkpoint_bytes=12 * 405_000_000_000)
    assert found.failures == pytest.approx(419, rel=0.15)
    assert 0.9 < 54 * 24 / (54 * 24 + found.hours) < 0.97


def test_one_device_hardly_fails_and_writes_one_checkpoint_at_least() -> None:
    found = goodput(hours=2.0, devices=1, nodes=1, checkpoint_bytes=12 * 8_000_000_000)
    assert found.failures < 1e-3
    assert found.checkpoint_every_seconds == pytest.approx(7200)
    assert found.checkpoint_hours == pytest.approx(32 / 3600)


def test_more_devices_fail_more_often_and_save_more_often() -> None:
    small, large = (goodput(hours=100.0, devices=n * 8, nodes=n, checkpoint_bytes=12 * 10**10) for n in (4, 400))
    assert large.failures == pytest.approx(100 * small.failures)
    assert large.checkpoint_every_seconds < small.checkpoint_every_seconds
    assert large.hours > small.hours


def test_a_tight_plan_writes_its_checkpoints_too() -> None:
    """Its job was told with a checkpoint of no bytes, every minute."""
    tight = Mock(spec=StepJudgement, verdict="tight")
    task = Mock(spec=TrainingTask)
    assert _saved(Mock(spec=Found, plans=[tight], best=None), task) is task.saved.return_value
    task.saved.assert_called_once_with(tight)
