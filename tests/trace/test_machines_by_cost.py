"""The cheapest machine is the one that whole searches on each of them find, though few are searched."""

import json
from typing import Any

import pytest

from gpu_plan.cli import main
from tests.accuracy.architectures import ARCHITECTURES
from tests.support.sample import sample

MACHINES = ("1xT4", "1xL4", "1xH100", "8xH100")
TWO = ("1xT4", "8xH100")
JOB = ("--seq-len", "128", "--tokens", "1B")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("cost") / "config.json"
    path.write_text(json.dumps(ARCHITECTURES["gpt2"].config()))
    return str(path)


def _asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    main([*words, *JOB, "--quiet", "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


@pytest.mark.usefixtures("plans_alone")
@pytest.mark.parametrize(
    ("machines", "prefer", "figure"),
    sample(
        [(TWO, "cost", "usd"), (MACHINES, "cost", "usd"), (MACHINES, "speed", "hours")], kept=[(TWO, "cost", "usd")]
    ),
)
def test_the_first_is_the_first_of_whole_searches(
    model: str, capsys: pytest.CaptureFixture[str], machines: tuple[str, ...], prefer: str, figure: str
) -> None:
    named = _asked(capsys, model, "--machines", ",".join(machines), "--prefer", prefer)["machines"]
    searched = {
        spec: _asked(capsys, model, "--gpus", spec, "--prefer", prefer, "--top", "1")["whole_job"][figure]
        for spec in machines
    }
    best = min(searched, key=lambda spec: searched[spec])
    assert (named[0]["spec"], named[0]["job"][figure]) == (best, pytest.approx(searched[best]))
    assert named[0]["all_plans"]


def test_the_smallest_takes_no_search(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing but the size decides: the simplest plan says that it fits."""
    named = _asked(capsys, model, "--machines", "1xL4,1xH100")["machines"]
    assert [(one["spec"], one["all_plans"]) for one in named] == [("1xL4", False), ("1xH100", False)]


def test_a_deadline_is_held_against_the_best_plan(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine whose simplest plan is late, and whose best one is not, keeps to it."""
    simple = _asked(capsys, model, "--machines", "8xH100")["machines"][0]["job"]["hours"]
    best = _asked(capsys, model, "--machines", "8xH100", "--prefer", "speed")["machines"][0]["job"]["hours"]
    assert best < simple, "another plan than the simplest is faster here"
    between = f"{(best + simple) / 2:.9f}h"
    kept = _asked(capsys, model, "--machines", "8xH100", "--deadline", between)["machines"]
    assert [one["spec"] for one in kept] == ["8xH100"]
    assert kept[0]["all_plans"]
