"""What a start imports: nothing heavy on the way to help, lists or a kept plan; for help, a handful of modules."""

import json
import os
import subprocess
import sys

import pytest

from gpu_plan.cli import main

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
        [sys.executable, "-c", _PROBE, *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=1500,
        check=True,
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
    own_weight = {"dataclasses"} if sys.version_info >= (3, 14) else set()  # argparse's own colours bring it there.
    assert not modules & ({*HEAVY, "numpy", "rich", "dataclasses"} - own_weight)


def test_what_is_kept_imports_nothing_heavy(tmp_path, monkeypatch, capsys):
    words = ("EleutherAI/pythia-70m", "--gpus", "1xT4", "--pin", "--json")
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["-c", *words])
    assert main([*words]) == 0
    first = capsys.readouterr().out
    assert list(tmp_path.glob("traces/*.trace")), "the first run must really trace, or this test shows nothing"
    second_code, second_modules, second = start(*words, cache=tmp_path)
    assert (second_code, second) == (0, first)
    assert not second_modules & set(HEAVY)
    # Another plan from the same trace: searched anew, not traced anew.
    _code, third_modules, third = start(*words, "--optimizer", "sgd", cache=tmp_path)
    assert third != first
    assert not third_modules & set(HEAVY)


_ADDED = """
import json, sys
before = set(sys.modules)
from gpu_plan.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
added = {name: getattr(sys.modules[name], "__file__", None) for name in sorted({*sys.modules} - before)}
print(json.dumps(added), file=sys.stderr)
"""


def test_help_reads_little():
    """Modules and source text above those of a bare interpreter, nearly all of it the standard library's.

    Beside the modules of this package stand the files of optimizers, whose words are in the help: one more for each.

    What a start costs is what it imports: these are four interpreter starts.
    """
    done = subprocess.run([sys.executable, "-c", _ADDED], capture_output=True, text=True, timeout=1500, check=True)
    added = json.loads(done.stderr.splitlines()[-1])
    own = {name for name in added if name.partition(".")[0] == "gpu_plan"}
    kinds = {name for name in own if name.startswith("gpu_plan.planner.workload.optimizers.kinds.")}
    assert len(own - kinds) <= 25, sorted(own - kinds)
    assert not {name for name in own if name.startswith(("gpu_plan.reports", "gpu_plan.executor", "gpu_plan.tui"))}
    assert len(added.keys() - kinds) <= 75, sorted(added)
    assert sum(os.path.getsize(file) for file in added.values() if file and file.endswith(".py")) < 1_250_000
