"""`plan explore` before there is a screen: what it begins with, and what it refuses."""

import argparse
import functools
import importlib.util
import os
import pty
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from gpu_plan import cli
from gpu_plan.commands import explore
from gpu_plan.planner.errors import InputError, UnreachableError, UsageError
from gpu_plan.planner.options.parser import given_job_words
from gpu_plan.planner.plan.document import to_json
from gpu_plan.planner.plan.figures import StrategyChoice
from gpu_plan.planner.plan.files import save
from gpu_plan.planner.plan.saved import saved_plan
from gpu_plan.tui import start
from gpu_plan.tui.app import ExplorerApp
from gpu_plan.tui.start import initial_state
from tests.support.plan_example import llama_on_8xh100

TENSOR_PARALLEL = StrategyChoice(name="tp", data_parallel=2, tensor_parallel=4, micro_batch_size=1, precision="bf16")
SPREAD = "--strategy tp --offload none --tp 4"


def state_of(*words):
    parser = argparse.ArgumentParser()
    explore.add_arguments(parser)
    own, script_words = cli.split_at_dashes(words)
    args = parser.parse_args(own)
    return initial_state(args, given_job_words(args), script_words)


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


def test_a_generations_options_are_taken():
    state = state_of("gpt2", "--gpus", "2xT4", "--task", "infer", "--batch", "4", "--kv-dtype", "fp8")
    assert state.task == "infer"
    assert state.command == "plan gpt2 --gpus 2xT4 --task infer --batch 4 --kv-dtype fp8"


def test_a_scripts_arguments_are_taken():
    state = state_of("train.py", "--gpus", "2xT4", "--", "--steps", "9")
    assert state.command == "plan train.py --gpus 2xT4 -- --steps 9"


@pytest.mark.parametrize(
    ("command", "restored"),
    [
        ("plan train.py --gpus 8xH100 -- --steps 9", "plan train.py --gpus 8xH100 -- --steps 9"),
        ("plan gpt2 --gpus 8xH100 --task infer --tp 2", "plan gpt2 --gpus 8xH100 --task infer --tp 2"),
        ("plan train.py --model gpt2 --gpus 8xH100 -- -x", "plan gpt2 --gpus 8xH100"),
        ("plan gpt2 --gpus 8xH100 --execute train.py -- -x", "plan gpt2 --gpus 8xH100"),
    ],
)
def test_plans_of_every_kind_of_job_are_restored(command, restored, tmp_path):
    path = tmp_path / "plan.json"
    document = replace(llama_on_8xh100(), command=command)
    if "infer" in command:
        document = replace(document, plans=(replace(document.plans[0], strategy=TENSOR_PARALLEL),))
    path.write_text(to_json(document))
    state = state_of("--plan", str(path))
    assert state.command == restored
    if state.task == "infer":
        assert state.focus_command == f"plan gpt2 --gpus 8xH100 --task infer {SPREAD} --pin"


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
        (("gpt2", "--gpus", "8xH100", "--", "-x"), UsageError, "belong to a training script"),
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


@pytest.mark.slow
def test_it_draws_on_the_terminal_where_stderr_goes_elsewhere(tmp_path):
    """A real terminal: Textual draws on stderr, which people send to a file."""
    own, its = pty.openpty()
    notes = tmp_path / "notes.txt"
    with notes.open("wb") as elsewhere:
        process = subprocess.Popen(
            [sys.executable, "-m", "gpu_plan", "explore", "gpt2", "--gpus", "2xT4"],
            stdin=its, stdout=its, stderr=elsewhere, env={**os.environ, "TERM": "xterm-256color"},
        )  # fmt: skip
    os.close(its)
    drawn, end = b"", time.monotonic() + 1500
    try:
        while b"Export" not in drawn and time.monotonic() < end:
            drawn += os.read(own, 65536)
        os.write(own, b"q")
        while process.poll() is None and time.monotonic() < end:
            try:
                drawn += os.read(own, 65536)
            except OSError:  # Its end of the terminal is closed.
                break
        assert process.wait(timeout=1500) == 0
    finally:
        process.kill()
        os.close(own)
    assert b"\x1b[?1049h" in drawn
    assert b"\x1b[?1049l" in drawn, "the terminal is given back as it was"
    assert notes.read_bytes() == b""


def test_an_error_within_the_explorer_is_the_commands_to_tell(monkeypatch, capfd):
    monkeypatch.setattr(ExplorerApp, "_furnish", lambda self: 1 / 0)
    monkeypatch.setattr(ExplorerApp, "run", functools.partialmethod(ExplorerApp.run, headless=True))
    with pytest.raises(ZeroDivisionError):
        start.explore(state_of("gpt2", "--gpus", "1xT4"))
    assert "Traceback" not in "".join(capfd.readouterr())
