"""The GitHub Action: its steps run as a runner runs them, its annotations are read back; the pre-commit hook."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.check.seeds import apply, changes, copy, plan_check
from tests.support.github_runner import run_action

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "action.yml"
HOOKS = ROOT / ".pre-commit-hooks.yaml"


def steps():
    return yaml.safe_load(ACTION.read_text())["runs"]["steps"]


def run(workspace, temp, **inputs):
    temp.mkdir(exist_ok=True)
    return run_action(ACTION, {"python": sys.executable, **inputs}, workspace=workspace, temp=temp)


def test_no_expression_stands_inside_a_script():
    scripts = [step["run"] for step in steps() if "run" in step]
    assert len(scripts) == 3
    assert not any("${{" in script for script in scripts)
    for script in scripts:
        subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=1500)


def test_other_actions_are_pinned_to_a_commit_that_says_its_version():
    used = re.findall(r"uses: (\S+)(.*)", ACTION.read_text())
    assert len(used) == 3
    assert all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", name) for name, _ in used)
    assert all(re.fullmatch(r" # v\d+\.\d+\.\d+", version) for _, version in used)


def test_inputs_and_outputs_explain_themselves():
    action = yaml.safe_load(ACTION.read_text())
    assert all(spec["description"].endswith(".") and "default" in spec for spec in action["inputs"].values())
    assert set(action["outputs"]) == {"status", "report"}
    texts = ACTION.read_text()
    assert all(f"inputs.{name}" in texts for name in action["inputs"])


def test_without_an_interpreter_plan_is_installed_with_the_actions_constraints():
    install = next(step for step in steps() if step["name"] == "Install plan")
    assert install["if"] == "${{ inputs.python == '' }}"
    assert '-c "$PLAN_ACTION/constraints.txt"' in install["run"]


@pytest.mark.parametrize("word", ["--update", "--init", "--format=json", "-ofile", "--output"])
def test_what_would_write_or_speak_otherwise_is_refused(word, tmp_path):
    ran = run(tmp_path, tmp_path / "temp", args=f"--no-cache {word}")
    assert ran.code == 2
    assert ran.outputs == {"status": "error", "report": ""}
    assert ran.annotations == [
        ("error", {"title": "plan check"}, f"args: {word} is not for this action: run plan check by hand for it")
    ]


def test_words_of_inputs_are_words_and_nothing_more(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.plan.checks.train]\nmodel = 'gpt2'\ngpus = 'T4'\n")
    evil = "nothing; touch pwned $(touch pwned) `touch pwned` * \n::error::x\n\"'"
    ran = run(tmp_path, tmp_path / "temp", jobs=evil)
    assert ran.code == 2
    assert not (tmp_path / "pwned").exists()
    (level, properties, message), = ran.annotations  # fmt: skip
    assert level == "error"
    assert properties["title"] == "plan check"
    assert "has no job [checks.nothing;]" in message


def test_a_configuration_that_makes_no_sense_is_annotated_at_its_line(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "pyproject.toml").write_text(
        "# jobs\n\n[tool.plan.checks.train]\nmodel = 'gpt2'\ngpus = 'T4'\nfail = 'lots'\n"
    )
    ran = run(tmp_path, tmp_path / "temp", **{"working-directory": "sub"})
    assert ran.code == 2
    assert ran.outputs["status"] == "error"
    (level, properties, message), = ran.annotations  # fmt: skip
    assert level == "error"
    assert "lots" in message
    assert "Traceback" not in ran.stderr
    assert properties.pop("line") in ("3", "6"), "the table's line, or the key's"
    assert properties == {"file": "sub/pyproject.toml", "title": "plan check"}


def baseline(project, tmp_path):
    """The project in a repository with its baselines written."""
    root = copy(project, tmp_path / "repository")
    done = plan_check(root, tmp_path / "temp" / "gpu-plan-cache", "--update")
    assert done.returncode == 0, done.stderr
    return root


@pytest.mark.slow
def test_a_pull_request_that_takes_more_memory_fails_at_the_line_that_does_it(tmp_path):
    (tmp_path / "temp").mkdir()
    root = baseline("tinygpt", tmp_path)
    passing = run(root, tmp_path / "temp", jobs="train")
    assert (passing.code, passing.outputs["status"], passing.annotations) == (0, "ok", [])
    assert "| ✅ ok | `train` |" in passing.summary
    assert Path(passing.outputs["report"]).is_file()
    change = next(change for change in changes() if str(change) == "tinygpt/regress-upcast-logits")
    apply(root, change.path.read_text())
    failing = run(root, tmp_path / "temp", args="--ascii")
    assert failing.code == 1
    assert failing.outputs["status"] == "fail"
    errors = [entry for entry in failing.annotations if entry[0] == "error"]
    culprit = change.culprits[0]
    assert failing.annotations[: len(errors)] == errors, "worst first"
    _, properties, message = errors[0]
    assert properties["file"] == culprit.file
    assert culprit.text in (root / culprit.file).read_text().splitlines()[int(properties["line"]) - 1]
    assert culprit.said in message
    assert "### ❌ fail: train" in failing.summary


def hook():
    (found,) = yaml.safe_load(HOOKS.read_text())
    return found


def test_the_hook_runs_what_a_shell_would(tmp_path):
    """As pre-commit does it: the entry's words, the hook's arguments, no file names, in the repository's root."""
    found = hook()
    assert found["id"] == "plan-check"
    assert found["language"] == "system"
    assert found["pass_filenames"] is False
    files = re.compile(found["files"])
    assert all(files.search(name) for name in ("pyproject.toml", "src/model.py", "ds.json", "conf/axolotl.yml"))
    assert not any(files.search(name) for name in ("README.md", "data.csv", "model.pyc"))
    (tmp_path / "plan.toml").write_text("[checks.train]\nmodel = 'gpt2'\ngpus = 'T4'\nfail = 'lots'\n")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        [*shlex.split(found["entry"]), *found.get("args", ())],
        cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert re.match(r"plan: error: plan.toml:[14]: ", done.stderr)
    assert len(done.stderr.splitlines()) == 1
