"""The README's excerpt is what the program prints; its examples are accepted."""

import pytest

from gpu_plan.cli import main
from tests.support.refresh_readme import README, refreshed


@pytest.mark.slow
def test_the_excerpt_is_the_present_output(monkeypatch, tmp_path):
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path))
    text = README.read_text(encoding="utf-8")
    assert "<!-- plan " in text
    assert refreshed(text) == text


@pytest.mark.parametrize("gpus", ["1x4090", "4x4090"])
def test_the_example_factory_is_planned(monkeypatch, tmp_path, capsys, gpus):
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path))
    monkeypatch.chdir(README.parent)
    assert main(["examples.factory:small_net", "--gpus", gpus]) == 0
    assert "SmallNet" in capsys.readouterr().out
