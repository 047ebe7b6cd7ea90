"""A fixed sample of the generated hostile inputs; the whole set is `python -m benchmarks.damage.hostile_inputs`."""

import pytest

from benchmarks.hostile import worker
from benchmarks.hostile.case import CANARY, Case
from benchmarks.hostile.kinds import KINDS, generate, whole_set
from tests.support.sample import sample

QUICK = ("words", "gpus", "hosts", "tools", "tables", "plans", "runs", "manifests", "snapshots", "scripts")
"""Kinds that are refused, or read, without building a model."""
SAMPLE = [(kind, seed) for kind in QUICK for seed in range(3)]


def test_the_set_is_large_and_made_from_seeds_alone():
    assert len(whole_set()) >= 3000
    assert len(set(whole_set())) == len(whole_set())
    for kind in KINDS:
        assert generate(kind, 3) == generate(kind, 3)
        assert len({repr(generate(kind, seed)) for seed in range(20)}) > 10


@pytest.mark.parametrize(("kind", "seed"), sample(SAMPLE, kept=[case for case in SAMPLE if case[1] == 0]))
def test_a_hostile_input(kind, seed):
    result = worker.forked(generate(kind, seed))
    assert result.faults == (), result


@pytest.mark.parametrize(("kind", "seed"), [("tools", 11), ("model", 1), ("plans", 7)])
def test_a_hostile_input_as_a_process_among_planted_modules(kind, seed):
    result = worker.started(generate(kind, seed))
    assert result.faults == (), result


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["model", "weights", "prompts"])
def test_hostile_models(kind):
    for seed in range(10):
        result = worker.started(generate(kind, seed))
        assert result.faults == (), result


def test_the_judge_sees_what_it_is_to_see(monkeypatch):
    """A command that does all that it must not: each is found."""
    import gpu_plan.cli as cli

    def bad(words):
        open(CANARY, "w").close()
        exec(compile("x = 1", f"{__import__('os').getcwd()}/evil.py", "exec"))
        print("\x1b[31m")
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "_run", bad)
    faults = " ".join(worker.forked(Case(kind="x", seed=0, words=("a",))).faults)
    for said in ("traceback", "exit code 70", "was written", "code run", "shown raw"):
        assert said in faults
