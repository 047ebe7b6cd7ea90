"""A name that no file system takes is a file that is not there: one line, and no internal error."""

import pytest

from gpu_plan.cli import main

LONG = "x" * 5000
COMMANDS = {
    "report": ("report", LONG),
    "convert": ("convert", LONG, "--to", "ddp"),
    "export": ("export", LONG, "--to", "torchrun", "-o", "out"),
    "diff": ("diff", LONG, LONG),
    "doctor": ("doctor", LONG),
    "from-config": ("from-config", LONG),
    "a model": (LONG, "--gpus", "1xT4"),
    "a saved plan": ("--plan", LONG, "--execute", "x.py"),
    "a script": ("openai-community/gpt2", "--gpus", "1xT4", "--execute", f"{LONG}.py", "--dry-run"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_it_is_not_there(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(COMMANDS[name]) in (2, 3)
    err = capsys.readouterr().err
    assert err.startswith("plan: error: ")
    assert err.count("\n") == 1
