"""A search of shipped traces, done by one process and by two: the same document, in which nobody is seen."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from gpu_plan.planner.job.alternatives import Came
from gpu_plan.planner.job.run import run_job
from gpu_plan.planner.options.request import Request
from gpu_plan.planner.plan.document import to_json
from gpu_plan.planner.search.aside import forked
from gpu_plan.planner.search.aside.forked import Aside
from tests.support.workers import ended

JOBS = {
    "whole": ("Qwen/Qwen2.5-0.5B", "2xRTX4090", ()),
    "sharded": ("meta-llama/Llama-3.1-8B", "8xH100", (("checkpointing", "full"), ("micro-batch", "2"))),
    "several nodes": ("meta-llama/Llama-3.2-1B", "2x8xL40S", (("offload", "none"),)),
}


def told(job: str, **more: object) -> str:
    model, gpus, words = JOBS[job]
    given = {"settings": (), "pinned": False, "explain": False, "trust_remote_code": False, "revision": None, **more}
    request = Request(model=model, gpus=gpus, words=words, use_cache=False, command="", **given)
    return to_json(run_job(request, lambda _: None).document)


@contextmanager
def answering(count: int, *, first: Callable[[Aside], None] = lambda _: None) -> Iterator[list[object]]:
    """So many workers while it is open; what they answered."""
    answers: list[object] = []
    real = Aside.answer

    def answer(aside: Aside, part: int) -> object:
        first(aside)
        found = real(aside, part)
        answers.extend([] if found is None else [found])
        return found

    with patch.object(forked, "workers", lambda: count), patch.object(Aside, "answer", answer):
        yield answers


@pytest.mark.parametrize("job", JOBS)
def test_the_document_is_the_same_whoever_made_it(job):
    alone = told(job)
    with answering(1, first=ended) as answers:
        assert told(job) == alone
        assert len(answers) > 6, "families, and what the document says of plans"
    with answering(3):
        assert told(job) == alone


def test_the_same_where_tensors_are_named():
    alone = told("sharded", explain=True)
    with answering(1, first=ended) as answers:
        assert told("sharded", explain=True) == alone
        assert answers


@pytest.mark.parametrize("job", ["whole", "sharded"])
def test_what_else_could_be_done_is_told_the_same(job):
    alone = told(job, advise=True)
    with answering(1, first=ended) as answers:
        assert told(job, advise=True) == alone
        assert sum(isinstance(one, Came) for one in answers) > 2
    with answering(2):
        assert told(job, advise=True) == alone
