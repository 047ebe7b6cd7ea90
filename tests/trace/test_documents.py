"""What README and docs show is true: commands run, excerpts are present output, Python blocks run, pages are built."""

import argparse
import contextlib
import io
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec

import pytest

from docs.site import schemas
from docs.site.messages import messages
from docs.site.pages import PAGES as GENERATED
from gpu_plan.cli import main, split_at_dashes
from gpu_plan.planner.options.words import join_negative, main_parser
from gpu_plan.verbs import VERBS, verb_parser
from tests.support.documents.commands import PAGES, ROOT, blocks, commands
from tests.support.documents.workspace import furnish, furnish_plans
from tests.support.refresh_readme import README, refreshed
from tests.support.sample import sample

COMMANDS = {str(command): command for command in commands()}
PLANS = {name: command for name, command in COMMANDS.items() if command.words[0] == "plan"}
QUICK = (
    "docs/gpus.md: plan gpus H100",
    "docs/index.md: plan models llama",
    "docs/scripts.md: plan from-config axolotl.yml --toml",
)
NOT_RUN = {
    r"--gpus auto": "the GPUs of the reader's machine",
    r"--hosts": "two machines; tests/execution/test_hosts.py runs the like",
    r"^plan explore": "a terminal; tests/tui drives it",
    r"^plan convert": "a checkpoint; tests/execution converts real ones",
    r"^plan doctor --launch": "a launch; tests/execution/test_doctor_launch.py runs one",
    r"--measured|report latest": "a recorded run; tests/check and tests/execution read real ones",
    r"--execute (?!.*--dry-run)": "a launch; tests/execution runs them",
    r"MODEL": "a placeholder",
}


def runs(command):
    return not any(re.search(pattern, command.line) for pattern in NOT_RUN)


@pytest.mark.parametrize("name", PLANS)
def test_every_plan_command_is_understood(name):
    own, _script_words = split_at_dashes(PLANS[name].words[1:])
    if own[0] in VERBS:
        verb_parser(own[0]).parse_args(own[1:])
    else:
        _args, unknown = main_parser(VERBS).parse_known_args(join_negative(own))
        assert not unknown


def test_every_other_command_is_there():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for command in COMMANDS.values():
        first, *rest = command.words
        if first == "make":
            assert rest[0] in targets, command
        elif first == "pip":
            assert rest[0] == "install", command
            assert all(extra in extras for word in rest for extra in re.findall(r"\[(\w+)\]", word)), command
        elif first == "python":
            assert find_spec(rest[rest.index("-m") + 1]), command
        else:
            assert first == "plan", command


def test_what_is_not_run_is_little():
    left = [name for name, command in PLANS.items() if not runs(command)]
    assert len(left) <= len(PLANS) / 3, left
    assert all(any(re.search(pattern, command.line) for command in PLANS.values()) for pattern in NOT_RUN)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        patch.setenv("COLUMNS", "80")
        furnish(folder)
        yield folder


@pytest.fixture(scope="module")
def plans(workspace):
    with contextlib.redirect_stdout(io.StringIO()):
        furnish_plans(workspace)


@pytest.mark.parametrize("name", sample([name for name in PLANS if runs(PLANS[name])], kept=QUICK))
def test_every_command_runs(name, workspace, request):
    command = PLANS[name]
    if name not in QUICK:
        request.getfixturevalue("plans")
    # What an earlier command of another page wrote is there already.
    words = [*command.words[1:]]
    if any(word in words for word in ("-o", "--save", "--snapshot", "--plot")) and words[0] not in VERBS:
        words.insert(words.index("--") if "--" in words else len(words), "--force")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(words)
    assert code in (0, 1)
    if command.written_to:
        (workspace / command.written_to).write_text(out.getvalue())
    if code == 1:
        assert words[0] == "check" or "OOM" in out.getvalue() or "fit" in out.getvalue()


@pytest.mark.slow
def test_the_excerpt_is_the_present_output(monkeypatch, tmp_path):
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path))
    text = README.read_text(encoding="utf-8")
    assert "<!-- plan " in text
    assert refreshed(text) == text


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 200


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, ("python",))], ids=lambda page: page.name)
def test_python_blocks_compile(page):
    for text in blocks(page, ("python",)):
        if not text.startswith("# in "):  # a line for the middle of a file: tests/trace/test_recipes.py puts it there
            compile(text, str(page), "exec")


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, ("toml",))], ids=lambda page: page.name)
def test_toml_blocks_are_toml(page):
    for text in blocks(page, ("toml",)):
        tomllib.loads(text)


@pytest.mark.parametrize("name", sample(GENERATED, kept=[name for name in GENERATED if name != "messages.md"]))
def test_generated_pages_are_made(name):
    text = GENERATED[name]()
    assert text.startswith("# ")
    assert text.count("\n") > 5


def test_every_option_of_every_verb_stands_on_the_page():
    page = GENERATED["options.md"]()
    parsers = [main_parser(VERBS), *map(verb_parser, VERBS)]
    names = [name for parser in parsers for action in parser._actions for name in action.option_strings]
    hidden = {
        name
        for parser in parsers
        for action in parser._actions
        if action.help is argparse.SUPPRESS or "--help" in action.option_strings
        for name in action.option_strings
    }
    assert [name for name in names if name not in hidden and name not in page] == []


def test_messages_are_gathered():
    found = {message.text: message.kind for message in messages(("planner/plan", "planner/options"))}
    assert found["schema_version is …, not …"] == "ValueError"
    assert found["… is given twice: keep one"] == "UsageError"
    assert found["how many plans to show"] == ""


def test_published_schemas_are_those_of_the_code():
    kept = {path.name: path.read_text(encoding="utf-8") for path in schemas.FOLDER.glob("*.json")}
    assert kept == schemas.texts(), "`make readme` writes them"


@pytest.mark.slow
def test_the_site_builds_without_network(tmp_path):
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for path in (tmp_path / "site").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?:[^\"]+)", text)
        assert not fetched, path


@pytest.mark.parametrize("gpus", ["1x4090", pytest.param("4x4090", marks=pytest.mark.slow)])
def test_the_example_factory_is_planned(monkeypatch, tmp_path, capsys, gpus):
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path))
    monkeypatch.chdir(ROOT)
    assert main(["examples.factory:small_net", "--gpus", gpus]) == 0
    assert "SmallNet" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_and_modules_that_a_page_names_are_there(page):
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|benchmarks|examples|planner|executor|reports|tui|src)/[\w./-]+)`", text)
    assert [name for name in named if not (ROOT / name).exists()] == []
    modules = re.findall(r"python -m ((?:benchmarks|tests)[\w.]+)", text)
    assert [name for name in modules if find_spec(name) is None] == []
