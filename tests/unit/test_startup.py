"""What a start imports: nothing heavy on the way to help, lists or a kept plan; help takes 5 interpreter starts."""

import json
import os
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "accelerate", "textual", "matplotlib", "huggingface_hub")
_PROBE = """
import json, sys
from gpu_plan.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as left:
    code = left.code or 0
sys.stdout.flush()
print(json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]), file=sys.stderr)
"""


def start(*words, cache):
    """Exit code, top-level modules imported, and stdout of one run in its own process."""
    environment = {**os.environ, "GPU_PLAN_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, *words], capture_output=True, text=True, env=environment, timeout=300, check=True
    )
    code, modules = json.loads(done.stderr.splitlines()[-1])
    return code, set(modules), done.stdout


@pytest.mark.parametrize("words", [(), ("gpus", "--help"), ("gpus",), ("models",), ("models", "llama"), ("--version",)])
def test_lists_import_nothing_heavy(words, tmp_path):
    code, modules, out = start(*words, cache=tmp_path)
    assert code == 0
    assert out
    assert not modules & set(HEAVY)


def test_help_imports_no_numpy_either(tmp_path):
    _code, modules, out = start("--help", cache=tmp_path)
    assert "--gpus" in out
    assert not modules & {*HEAVY, "numpy", "rich", "reports", "dataclasses"}


def test_what_is_kept_imports_nothing_heavy(tmp_path):
    words = ("EleutherAI/pythia-70m", "--gpus", "1xT4", "--pin", "--json")
    first_code, first_modules, first = start(*words, cache=tmp_path)
    assert "torch" in first_modules, "the first run must really trace, or this test shows nothing"
    second_code, second_modules, second = start(*words, cache=tmp_path)
    assert (first_code, first) == (second_code, second)
    assert not second_modules & set(HEAVY)
    # Another plan from the same trace: searched anew, not traced anew.
    _code, third_modules, third = start(*words, "--optimizer", "sgd", cache=tmp_path)
    assert third != first
    assert not third_modules & set(HEAVY)


def test_help_takes_at_most_five_interpreter_starts():
    bare = _cpu_seconds([sys.executable, "-c", "pass"])
    assert _cpu_seconds([sys.executable, "-m", "gpu_plan", "--help"]) <= 5 * bare


def _cpu_seconds(command, runs=10):
    """Processor time of ten runs: what else this machine does meanwhile must not matter."""
    before = os.times()
    for _ in range(runs):
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
