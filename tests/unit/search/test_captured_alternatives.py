"""What else could be done where every change runs a trainer anew: few are evaluated, the others are named."""

from types import SimpleNamespace
from typing import Any

import pytest

from gpu_plan.planner.job.alternatives import tried
from gpu_plan.planner.job.alternatives.ways import Known
from gpu_plan.planner.options.request import Request


def job(words: tuple[tuple[str, str], ...] = (("recipe", "dpo"),), *, alternatives: bool = False) -> Any:
    request = SimpleNamespace(words=words, model="a/b", settings=(), alternatives=alternatives)
    task = SimpleNamespace(on=lambda cluster: cluster, smaller=list)
    return SimpleNamespace(request=request, cluster="here", task=task, known=Known(), captures="recipe" in dict(words))


class Runs:
    """Counts what is evaluated; `fit` are the changes that do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *fit: str) -> None:
        self.made: list[str] = []
        monkeypatch.setattr(tried, "asked", lambda job, way: self._made(way.words, fit))
        monkeypatch.setattr(tried, "more_devices", lambda cluster: self._devices("more", fit))
        monkeypatch.setattr(tried, "larger_devices", lambda job: self._devices("larger", fit))
        monkeypatch.setattr(tried, "at_its_batch", lambda task: task.fitting())
        monkeypatch.setattr(
            tried, "alternative_of",
            lambda change, *_, **__: SimpleNamespace(change=change, host_bytes_per_node=0),
        )  # fmt: skip

    def _made(self, words: str, fit: tuple[str, ...]) -> Any:
        self.made.append(words)
        return SimpleNamespace(fitting=lambda: words if words in fit else None)

    def _devices(self, name: str, fit: tuple[str, ...]) -> Any:
        for size in range(2, 9):
            words = f"{name}{size}"
            self.made.append(words)
            yield words, SimpleNamespace(fitting=lambda words=words: words if words in fit else None)


def test_adapters_first_and_no_further_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, "--peft lora", "more2")
    found = tried.alternatives(job(), fits=False)
    assert [one.change for one in found.found] == ["--peft lora", "more2"]
    assert runs.made == ["--peft lora", "more2", "larger2", "larger3"]
    assert "--peft qlora" in found.left
    assert not any("fused-loss" in one or "stack" in one for one in found.left)


def test_a_job_that_nothing_helps_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch)
    found = tried.alternatives(job(), fits=False)
    assert (found.found, len(runs.made)) == ([], 6)


def test_all_of_them_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch)
    tried.alternatives(job(alternatives=True), fits=False)
    assert "--fused-loss" in runs.made


def test_what_a_request_captures() -> None:
    from gpu_plan.planner.job.alternatives.changes import Job

    for words, captures in (({"recipe": "dpo"}, True), ({"recipe": "dpo", "task": "infer"}, False), ({}, False)):
        request = Request.__new__(Request)
        object.__setattr__(request, "words", tuple(words.items()))
        asked = Job.__new__(Job)
        object.__setattr__(asked, "request", request)
        object.__setattr__(asked, "source", SimpleNamespace(kind="catalog"))
        assert asked.captures == captures
