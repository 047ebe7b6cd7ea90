"""A composite action as a runner takes it: expressions in env and if, bash as the runner starts it, files for outputs.

After actions/runner src/Runner.Worker: handlers/CompositeActionHandler.cs, ScriptHandler.cs (`bash --noprofile --norc
-eo pipefail {0}`), ActionCommand.cs (TryParseV2). Steps that use other actions are noted, not run.
"""

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import yaml

_EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")
_EQUAL = re.compile(r"([\w.-]+) == '([^']*)'")


@dataclass
class Ran:
    """What became of a run of an action."""

    code: int = 0
    stdout: str = ""
    stderr: str = ""
    summary: str = ""
    outputs: dict = field(default_factory=dict)
    used: list = field(default_factory=list)
    """Other actions, with the inputs that they were given."""
    names: list = field(default_factory=list)

    @property
    def annotations(self):
        return list(annotations(self.stdout + "\n" + self.stderr))


def run_action(path, inputs, *, workspace, temp):
    """Runs the action whose action.yml is at `path` on the repository `workspace`."""
    action = yaml.safe_load(Path(path).read_text())
    unknown = set(inputs) - set(action["inputs"])
    assert not unknown, unknown
    contexts = {f"inputs.{name}": inputs.get(name, spec.get("default", "")) for name, spec in action["inputs"].items()}
    contexts |= {
        "github.action_path": str(Path(path).parent),
        "github.sha": "0" * 40,
        "github.workspace": str(workspace),
        "runner.os": "Linux",
        "runner.temp": str(temp),
    }
    ran = Ran()
    for step in action["runs"]["steps"]:
        if "if" in step and ran.code == 0 and not _holds(step["if"], contexts):
            continue
        if ran.code:
            continue
        if "uses" in step:
            ran.used.append((step["uses"], {key: _filled(text, contexts) for key, text in step["with"].items()}))
        else:
            _run_step(step, contexts, ran, Path(workspace), Path(temp))
    for name, spec in action["outputs"].items():
        ran.outputs[name] = _filled(spec["value"], contexts)
    return ran


def _run_step(step, contexts, ran, workspace, temp):
    files = {name: temp / f"{name}-{len(ran.names)}" for name in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STEP_SUMMARY")}
    for file in files.values():
        file.write_text("")
    script = temp / f"script-{len(ran.names)}.sh"
    script.write_text(step["run"])
    environment = {
        **os.environ,
        **{name: str(file) for name, file in files.items()},
        "GITHUB_ACTIONS": "true",
        "CI": "true",
        "GITHUB_WORKSPACE": str(workspace),
        "RUNNER_TEMP": str(temp),
        "RUNNER_OS": "Linux",
        **{f"INPUT_{key[7:].upper()}": text for key, text in contexts.items() if key.startswith("inputs.")},
        **{key: _filled(str(text), contexts) for key, text in step.get("env", {}).items()},
    }
    folder = workspace / _filled(step.get("working-directory", "."), contexts)
    assert step["shell"] == "bash"
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=1500, check=False)
    ran.names.append(step["name"])
    ran.code, ran.stdout, ran.stderr = done.returncode, ran.stdout + done.stdout, ran.stderr + done.stderr
    ran.summary += files["GITHUB_STEP_SUMMARY"].read_text()
    for line in files["GITHUB_OUTPUT"].read_text().splitlines():
        key, _, value = line.partition("=")
        contexts[f"steps.{step['id']}.outputs.{key}"] = value


def _holds(condition, contexts):
    found = _EQUAL.fullmatch(_EXPRESSION.fullmatch(condition)[1])
    return contexts.get(found[1], "") == found[2]


def _filled(text, contexts):
    """What was never set is empty, as on a runner."""
    return _EXPRESSION.sub(lambda found: contexts.get(found[1], ""), text)


def annotations(log):
    """Level, properties and message of each annotation in a log, unescaped as a runner does it."""
    for line in log.splitlines():
        if line.strip().startswith(("::error", "::warning", "::notice")):
            head, _, message = line.strip()[2:].partition("::")
            level, _, written = head.partition(" ")
            pairs = [pair.partition("=") for pair in written.split(",") if pair]
            yield level, {key: _plain(text, ("%3A", ":"), ("%2C", ",")) for key, _, text in pairs}, _plain(message)


def _plain(text, *more):
    for escaped, meant in (*more, ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(escaped, meant)
    return text
