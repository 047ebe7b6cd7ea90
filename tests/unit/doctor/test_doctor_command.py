"""`plan doctor`: exit codes, formats, notebooks, bad input; nothing of the script is run, nothing heavy is imported."""

import json
import subprocess
import sys

import pytest

from gpu_plan.cli import main
from tests.support.seeds import SCRIPTS, SEEDS


def write(folder, name, text):
    path = folder / name
    path.write_text(text)
    return str(path)


def bad(rule):
    return next(seed for seed in SEEDS if seed.rule == rule).source()


def run(capsys, *words):
    code = main(["doctor", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_an_error_is_exit_code_4_with_place_why_and_fix(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "train.py", bad("plain-backward"))
    code, out, _ = run(capsys, "train.py", "--script-only")
    assert code == 4
    line = bad("plain-backward").splitlines().index("                loss.backward()") + 1
    assert f"  train.py:{line}: loss.backward() in a script" in out
    assert "why: fp16 losses are not scaled" in out
    assert "fix: write accelerator.backward(loss)" in out
    assert out.splitlines()[0] == "train.py: 1 error"
    assert max(map(len, out.splitlines())) <= 100


def test_warnings_and_notes_leave_0(tmp_path, capsys):
    path = write(tmp_path, "train.py", bad("torch-clipping"))
    code, out, _ = run(capsys, path, "--script-only")
    assert code == 0
    assert "1 warning" in out


def test_a_good_script_is_said_to_be_good(capsys):
    code, out, _ = run(capsys, str(SCRIPTS / "lm_accelerate.py"), "--script-only")
    assert (code, "nothing wrong found" in out) == (0, True)


def test_json_holds_everything_once(tmp_path, capsys):
    path = write(tmp_path, "train.py", bad("rank-leaves-loop-alone"))
    code, out, _ = run(capsys, path, "--json")
    document = json.loads(out)
    assert code == 4
    assert document["counts"]["error"] >= 1
    finding = next(item for item in document["findings"] if item["id"] == "rank-leaves-loop-alone")
    assert finding["file"] == path
    assert finding["line"] == bad("rank-leaves-loop-alone").splitlines().index("                break") + 1
    assert {check["id"] for check in document["machine"]} >= {"kernel", "driver", "shared-memory"}
    assert document["launch"] is None


def test_markdown_escapes_what_the_script_says(tmp_path, capsys):
    text = bad("save-on-every-rank").replace('"plain.pt"', '"a|b<script>.pt"')
    code, out, _ = run(capsys, write(tmp_path, "train.py", text), "--script-only", "--format", "md")
    assert code == 0
    assert "<script>" not in out
    rows = [line for line in out.splitlines() if line.startswith("| warning")]
    assert len(rows) == 1
    assert rows[0].replace("\\|", "").count("|") == 6


def test_ascii_is_ascii(capsys):
    _code, out, _ = run(capsys, "--ascii")
    assert out.isascii()


def notebook(*cells):
    code = [{"cell_type": "code", "source": source, "metadata": {}, "outputs": []} for source in cells]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": "# text"}, *code], "nbformat": 4})


def test_a_finding_in_a_notebook_names_cell_and_line(tmp_path, capsys):
    source = bad("plain-backward")
    body = source[: source.index('if __name__ == "__main__":')]
    launcher = "from accelerate import notebook_launcher\nnotebook_launcher(main, num_processes=2)"
    path = write(
        tmp_path,
        "a.ipynb",
        notebook("!pip install \\\n  accelerate\n%matplotlib inline", "print(\n    '%d'\n    % 1\n)", body, launcher),
    )
    code, out, _ = run(capsys, path, "--script-only", "--json")
    line = source.splitlines().index("                loss.backward()") + 1
    found = json.loads(out)["findings"]
    assert code == 4
    assert [(item["cell"], item["line"], item["id"]) for item in found] == [(3, line, "plain-backward")]
    assert f"cell 3 line {line}" in found[0]["place"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("missing.py",), 3, "there is no script missing.py"),
        (("broken.py",), 2, "broken.py:2: the script does not parse"),
        ((".",), 2, "is a folder"),
        (("no.ipynb",), 2, "is not a notebook"),
        (("--script-only",), 2, "--script-only needs a script"),
        (("good.py", "--gpus", "2xcpu"), 2, "give --launch"),
        (("good.py", "--plan", "none.json"), 3, "there is no plan none.json"),
        (("good.py", "--plan", "broken.py"), 2, "broken.py"),
        (("good.py", "--json", "--format", "md"), 2, "two formats"),
        (("good.py", "--script-only", "--launch"), 2, "choose one"),
        (("good.py", "-o", "good.py"), 2, "give --force"),
        (("--launch", "--gpus", "2xcpu", "--strategy", "nonsense"), 2, "nonsense"),
    ],
)
def test_bad_input_is_one_line(words, code, says, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "good.py", "x = 1\n")
    write(tmp_path, "broken.py", "import os\ndef f(:\n")
    write(tmp_path, "no.ipynb", "[]")
    found, out, err = run(capsys, *words)
    assert (found, out) == (code, "")
    assert says.replace("missing.py", str(tmp_path / "missing.py")) in err or says in err
    assert len(err.splitlines()) == 1


def test_one_rank_needs_no_care_for_others(tmp_path, capsys, monkeypatch):
    """Under a plan for one device, only what is wrong on one device counts."""
    from pathlib import Path

    from gpu_plan.executor.doctor.intent import Intent
    from gpu_plan.executor.doctor.script import examine_script
    from gpu_plan.executor.script.read import read_script

    alone = Intent(world_size=1, strategy="single", precision="bf16-mixed")
    for rule, expected in (("save-on-every-rank", set()), ("plain-backward", {"plain-backward"})):
        script = read_script(Path(write(tmp_path, "train.py", bad(rule))))
        assert {finding.id for finding in examine_script(script, alone)} == expected


def test_the_plan_decides_how_grave_a_fault_is(tmp_path):
    from pathlib import Path

    from gpu_plan.executor.doctor.intent import Intent
    from gpu_plan.executor.doctor.script import examine_script
    from gpu_plan.executor.script.read import read_script

    script = read_script(Path(write(tmp_path, "train.py", bad("prepared-apart"))))
    severities = {}
    for strategy in ("ddp", "fsdp", "zero3"):
        found = examine_script(script, Intent(world_size=2, strategy=strategy, precision="bf16-mixed"))
        severities[strategy] = next(finding.severity for finding in found if finding.id == "prepared-apart")
    assert severities == {"ddp": "warning", "fsdp": "error", "zero3": "error"}


def test_nothing_is_run_and_nothing_heavy_imported(tmp_path):
    marker = tmp_path / "ran"
    script = write(tmp_path, "train.py", f"open({str(marker)!r}, 'w')\nimport torch, accelerate\n")
    probe = (
        "import sys, json\nfrom gpu_plan.cli import main\ncode = main(sys.argv[1:])\n"
        "print(json.dumps([code, sorted({name.partition('.')[0] for name in sys.modules})]), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, "doctor", script], capture_output=True, text=True, timeout=1500, check=True
    )
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0
    assert not marker.exists()
    assert not {"torch", "transformers", "accelerate", "deepspeed", "rich", "numpy"} & set(modules)


def test_deep_and_strange_scripts_are_borne(tmp_path):
    """Recursion, deep nesting, star arguments, lambdas, async, match: read to the end, without an exception."""
    from pathlib import Path

    from gpu_plan.executor.doctor.script import examine_script
    from gpu_plan.executor.script.read import read_script

    deep = "x = " + "(" * 80 + "1" + ")" * 80 + "\n"
    chain = "".join(f"def f{n}(a): return f{n + 1}(a)\n" for n in range(300)) + "def f300(a): return f0(a)\nf0(1)\n"
    odd = (
        "import torch\nfrom accelerate import Accelerator\nasync def g(*a, **k):\n    async with a[0] as b:\n"
        "        async for c in b: yield c\nmatch torch:\n    case 1: pass\n    case _: y = [*range(3)]\n"
        "class A(A if 0 else object):\n    a, b = 1, 2\n    @property\n    def p(self): return self.p\nA().p\n"
        "def r(n): return r(n - 1) if n else Accelerator().prepare(*[r(0)])\nr(3)\n(z := [q for q in [1] if q])\n"
        "import os\nos.environ[f'{z}'] = '1'\n"
        "while True:\n    try: x = 1\n    except* ValueError: raise\n    finally: pass\n    break\n"
    )
    for text in (deep, chain, odd, "", "# nothing\n"):
        examine_script(read_script(Path(write(tmp_path, "odd.py", text))))
