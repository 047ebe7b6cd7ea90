"""The recipes of docs/extending, followed to the letter in a copy of the package."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.support.documents.commands import RECIPES, ROOT, blocks

FOLDERS = ("planner", "executor", "reports", "tui", "src")
KINDS = ("python", "toml", "json")
_FILE = re.compile(r"# file: (\S+)\n(.*)", re.DOTALL)
_APPEND = re.compile(r"# append to (\S+)\n(.*)", re.DOTALL)
_INSERT = re.compile(r"# in (\S+), behind: ([^\n]+)\n(.*)", re.DOTALL)
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info")
NAMES = [page.stem for page in RECIPES]


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The package as it stands here, for recipes to add to: none touches what another adds."""
    folder = tmp_path_factory.mktemp("recipes")
    for name in FOLDERS:
        shutil.copytree(
            ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    return folder


def follow(page, folder):
    """Writes what the page says, where it says; gives its commands."""
    followed = 0
    for text in blocks(page, KINDS):
        whole, end, inside = _FILE.match(text), _APPEND.match(text), _INSERT.match(text)
        if whole:
            path = folder / whole[1]
            assert not path.exists(), "a recipe adds files"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(whole[2], encoding="utf-8")
        elif end:
            with (folder / end[1]).open("a", encoding="utf-8") as file:
                file.write("\n" + end[2])
        else:
            assert inside, text
            path, before = folder / inside[1], inside[2].replace("\\n", "\n")
            content = path.read_text(encoding="utf-8")
            assert content.count(before) == 1, before
            path.write_text(content.replace(before, before.rstrip("\n") + "\n" + inside[3]), encoding="utf-8")
        followed += 1
    assert followed
    return [shlex.split(line, comments=True) for text in blocks(page, ("sh",)) for line in text.splitlines()]


def plan(folder, *words):
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder / "src"),
        "COLUMNS": "80",
        "GPU_PLAN_CACHE": str(folder / "cache"),
    }
    return subprocess.run(
        [sys.executable, "-m", "gpu_plan", *words],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=1500,
    )  # fmt: skip


def pages():
    return {page.stem: page for page in RECIPES}


def test_every_recipe_is_linked():
    overview = (ROOT / "docs" / "extending" / "index.md").read_text(encoding="utf-8")
    assert all(f"({name}.md)" in overview for name in NAMES)
    assert set(NAMES) == {"gpu", "strategy", "optimizer", "stack", "engine", "family"}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_works_as_written(name, copied):
    commands = follow(pages()[name], copied)
    assert commands
    for words in commands:
        assert words[0] == "plan"
        done = plan(copied, *words[1:])
        assert done.returncode == 0, (words, done.stderr)
        assert done.stdout


def test_the_recipe_of_a_gpu_adds_one(tmp_path):
    """The quick one of them."""
    for name in FOLDERS:
        shutil.copytree(
            ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "catalog")
        )
    first, *_rest = follow(pages()["gpu"], tmp_path)
    done = plan(tmp_path, *first[1:])
    assert done.returncode == 0, done.stderr
    assert "Example X1" in done.stdout


@pytest.mark.parametrize("key", ["match", "context", "name"])
def test_an_entry_that_lacks_a_key_is_named(tmp_path, key):
    from gpu_plan.planner.hardware.catalog import check_entry

    entry = {"name": "X", "short": "X", "vendor": "v", "architecture": "a", "form": "PCIe", "match": {}, "context": {}}
    check_entry("x1", entry)
    del entry[key]
    with pytest.raises(ValueError, match=rf"gpus.toml, \[gpus.x1\]: {key} is missing"):
        check_entry("x1", entry)
