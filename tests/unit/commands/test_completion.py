"""`plan completion SHELL` completes verbs, options and values; `plan help` and `-V` are as `--help` and `--version`."""

import shutil
import subprocess

import pytest

from gpu_plan.cli import main
from gpu_plan.verbs import VERBS
from gpu_plan.version import __version__


def said(capsys, *words):
    assert main(words) == 0
    return capsys.readouterr().out


@pytest.fixture
def script(capsys, tmp_path):
    def write(shell):
        path = tmp_path / f"plan.{shell}"
        path.write_text(said(capsys, "completion", shell))
        return path

    return write


ASKED = {
    "plan from": "from-config",
    "plan gpus --js": "--json",
    "plan gpt2 --strategy hs": "hsdp",
    "plan gpt2 --prec": "--precision",
    "plan gpt2 --set zero.reduce": "zero.reduce_bucket_size=",
    "plan completion --he": "--help",
}


def run(shell, *words, **given):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    return subprocess.run([shell, *words], capture_output=True, text=True, check=True, timeout=300, **given).stdout


@pytest.mark.parametrize(("line", "word"), ASKED.items())
def test_bash_completes(script, tmp_path, line, word):
    ask = (
        f"source {script('bash')}; COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); _plan;"
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert run("bash", "--norc", "-c", ask, cwd=tmp_path).split() == [word]


@pytest.mark.parametrize(("line", "word"), ASKED.items())
def test_fish_completes(script, tmp_path, line, word):
    out = run("fish", "--no-config", "-c", f"source {script('fish')}; complete -C '{line}'", cwd=tmp_path)
    assert word in [one.split("\t")[0] for one in out.splitlines()]


def test_zsh_reads_it(script, tmp_path):
    read = f"autoload -U compinit; compinit -u -D; source {script('zsh')}; print ${{_comps[plan]}}"
    assert run("zsh", "-fc", read, cwd=tmp_path).strip() == "_plan"
    text = script("zsh").read_text()
    assert all(f"        {verb})" in text for verb in VERBS)


def test_the_help_begins_with_ten_lines(capsys):
    lines = said(capsys, "help").splitlines()
    assert lines[10] == ""
    opening = lines[:10]
    assert sum(line.startswith("  plan ") for line in opening) == 3
    assert all(verb in " ".join(opening).split() for verb in VERBS)
    assert all(len(line) <= 80 for line in opening)


def test_help_of_a_verb_is_its_own(capsys):
    helped = said(capsys, "help", "gpus")
    with pytest.raises(SystemExit):
        main(["gpus", "--help"])
    assert capsys.readouterr().out == helped


def test_help_of_no_verb_names_a_near_one(capsys):
    assert main(["help", "gpuss"]) == 2
    assert "Did you mean gpus?" in capsys.readouterr().err


def test_short_version(capsys):
    assert said(capsys, "-V") == f"plan {__version__}\n"
