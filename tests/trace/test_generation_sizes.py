"""Sizes between recorded generations are told as they are recorded, and a plan records few of them."""

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.generation.session import GenerationSession
from gpu_plan.planner.trace.generation.sizes import Sizes
from gpu_plan.planner.trace.generation.variant import GenerationVariant
from tests.support.same_trace import assert_same_trace
from tests.trace.test_generation_folds import MODELS, PLAIN, session_of

PROMPTS = [replace(PLAIN, prompt=63 + 64 * n) for n in (1, 90, 9, 30)]
ASKED = replace(PLAIN, prompt=63 + 64 * 22)


@pytest.fixture(scope="module")
def llama() -> GenerationSession:
    """One session, each of whose generations is recorded once."""
    session = session_of("llama")
    session.trace = functools.cache(session.trace)  # type: ignore[method-assign]
    return session


def _told(session: GenerationSession, known: list[GenerationVariant], asked: GenerationVariant) -> Any:
    sizes = Sizes()
    for variant in known:
        sizes.add(variant, session.trace(variant))
    return sizes.between(asked)


def test_a_told_length_equals_the_recorded_one(llama: GenerationSession) -> None:
    assert_same_trace(_told(llama, PROMPTS, ASKED), llama.trace(ASKED))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gemma-3", "deepseek-v3", "jamba"])
def test_a_told_size_equals_the_recorded_one_over_classes(name: str) -> None:
    session = session_of(name)
    batches = [replace(PLAIN, batch=n) for n in (2, 50, 7)]
    for known, asked in ((PROMPTS, ASKED), (batches, replace(PLAIN, batch=33))):
        told = _told(session, known, asked)
        if told is not None:  # a window, or tiles: then each size is recorded
            assert_same_trace(told, session.trace(asked))
        else:
            assert name in ("gemma-3", "jamba")


def test_what_recordings_do_not_tell_is_not_told(llama: GenerationSession) -> None:
    told = Sizes()
    for variant in PROMPTS:
        assert told.between(ASKED) is None, "before enough is known"
        told.add(variant, llama.trace(variant))
    assert told.between(replace(PLAIN, prompt=63 + 64 * 91)) is None, "beyond the largest"
    assert told.between(replace(PLAIN, prompt=64 * 22)) is None, "of another remainder"
    assert told.between(replace(ASKED, batch=2)) is None, "of another batch"
    *straight, last = PROMPTS
    size = llama.trace(last).bytes_fixed.copy()
    size[5] += 512
    bent = Sizes()
    for variant in straight:
        bent.add(variant, llama.trace(variant))
    bent.add(last, replace(llama.trace(last), bytes_fixed=size))
    assert bent.between(ASKED) is None, "where one storage leaves the curve"


def test_a_plan_records_few_generations_and_builds_one_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest context and the largest batch are found over seven recordings at most, in one model."""
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path))
    recorded, built = [], []
    record, build = GenerationSession.trace, GenerationSession._built

    def counted(self: GenerationSession, variant: GenerationVariant) -> StepTrace:
        recorded.append((variant.prompt, variant.batch))
        return record(self, variant)

    def counted_build(self: GenerationSession) -> Any:
        built.append(self)
        return build(self)

    monkeypatch.setattr(GenerationSession, "trace", counted)
    monkeypatch.setattr(GenerationSession, "_built", counted_build)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(MODELS["llama"].config()))
    words = (str(config), "--task", "infer", "--gpus", "1xL4", "--context", "4096", "--json")
    assert main([*words, "--set", "memory.reserve=12GiB"]) == 0
    figures = json.loads(capsys.readouterr().out)["plans"][0]["inference"]
    assert figures["limits"] == {"max_context": "memory", "max_batch": "memory"}
    assert (len(recorded) <= 7, len(built)) == (True, 1), recorded
