"""`plan explore` before there is a screen: what it begins with, and what it refuses."""

import argparse
import importlib.util

import pytest

from planner import cli
from planner.commands import explore
from planner.errors import InputError, UnreachableError, UsageError
from planner.options import given_job_words
from planner.plan import to_json
from planner.plan_io import save
from planner.plan_saved import saved_plan
from tests.support.plan_example import llama_on_8xh100
from tui.start import initial_state


def state_of(*words):
    parser = argparse.ArgumentParser()
    explore.add_arguments(parser)
    args = parser.parse_args(words)
    return initial_state(args, given_job_words(args))


def test_the_main_jobs_own_options_are_taken():
    state = state_of("gpt2", "--gpus", "8xH100", "--seq-len", "8k", "--set", "data.padding=longest", "--fused-loss")
    assert state.command == "plan gpt2 --gpus 8xH100 --seq-len 8k --fused-loss --set data.padding=longest"
    assert state.following
    assert not state_of("gpt2", "--gpus", "8xH100", "--pin").following


@pytest.mark.parametrize("whole", [True, False])
def test_a_plans_file_gives_back_the_state_it_was_made_in(whole, tmp_path):
    path, document = tmp_path / "plan.json", llama_on_8xh100()
    if whole:
        path.write_text(to_json(document))
    else:
        save(saved_plan(document, document.plans[1]), path)
    state = state_of("--plan", str(path))
    assert state.command == document.command
    assert not state.following
    chosen = document.plans[0 if whole else 1].strategy
    assert state.value("strategy") == chosen.name
    assert state.value("micro-batch") == str(chosen.micro_batch_size)


def test_a_plans_file_of_another_version_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(
        to_json(llama_on_8xh100())
        .replace('"schema_version":1', '"schema_version":7', 1)
        .replace('"schema_version": 1', '"schema_version": 7', 1)
    )
    with pytest.raises(InputError, match="schema_version is 7"):
        state_of("--plan", str(path))


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        ((), UsageError, "which model"),
        (("gpt2",), UsageError, "which GPUs"),
        (("train.py", "--gpus", "8xH100", "--task", "infer"), UsageError, "not a training script"),
        (("gpt2", "--plan", "x.json"), UsageError, "leave out MODEL"),
        (("gpt2", "--gpus", "8xH100", "--context", "512"), UsageError, "add --task infer"),
        (("--plan", "/no/such/plan.json"), UnreachableError, "there is no plan"),
    ],
)
def test_what_cannot_be_explored(words, error, told):
    with pytest.raises(error, match=told):
        state_of(*words)


def test_without_a_terminal_it_says_so(capsys):
    assert cli.main(["explore", "gpt2", "--gpus", "8xH100"]) == 2
    assert "the explorer needs a terminal" in capsys.readouterr().err


def test_without_textual_it_says_how_to_get_it(capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "textual" else found(name))
    assert cli.main(["explore", "gpt2", "--gpus", "8xH100"]) == 2
    assert capsys.readouterr().err.strip().endswith("pip install 'gpu-plan[tui]'")
