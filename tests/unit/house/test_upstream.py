"""What is mirrored or patched stands in a table with its version and digest, and a moved source is named."""

import dataclasses
import subprocess
import sys
import tomllib
from collections import Counter
from itertools import groupby

import pytest

from gpu_plan.planner.upstream import moved
from gpu_plan.planner.upstream.digests import Source
from gpu_plan.planner.upstream.moved import area_of, moved_line, moved_parts
from gpu_plan.planner.upstream.sources import site_of, source_of
from gpu_plan.planner.upstream.table import PATH, held, held_versions, table_text
from tests.support.sample import sample
from tests.support.upstream.gather import FOLDERS, Gathered, rows
from tests.support.upstream.places import ROOT, own_modules
from tests.support.upstream.projects import HOMES

ROWS = held()
GROUP = "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py"


def folder_of(row):
    return "/".join(row.file.split("/")[:3]) if row.project == "torch" else row.project


GROUPS = {name: list(group) for name, group in groupby(sorted(ROWS, key=folder_of), key=folder_of)}
QUICK = ("safetensors", "torch/distributed/fsdp")


def read_again(parts):
    return "\n".join(f"{part.project}: {part.file}: {part.symbol or '(the file)'} -> {part.used_by}" for part in parts)


@pytest.mark.parametrize("group", sample(sorted(GROUPS), kept=QUICK))
def test_installed_sources_say_what_was_read(group):
    parts = moved_parts(GROUPS[group])
    assert not parts, f"read again, change what mirrors it, then `make upstream`:\n{read_again(parts)}"


def test_versions_are_those_that_constraints_pin():
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line and line[0] != "#"
    )
    assert {name: pinned[name] for name in held_versions()} == held_versions(), (
        "another pin: `make prove`, `make upstream`"
    )


def test_the_table_is_sorted_and_complete():
    assert table_text(ROWS) == PATH.read_text(encoding="utf-8")
    twice = [key for key, count in Counter((row.project, row.file, row.symbol) for row in ROWS).items() if count > 1]
    assert not twice
    for row in ROWS:
        assert row.used_by, row
        assert all((ROOT / module).is_file() for module in row.used_by.split()), row


def test_python_that_a_wheel_holds_has_a_digest():
    lacking = [row for row in ROWS if not row.digest and row.project in held_versions() and row.file.endswith(".py")]
    assert not lacking


def test_every_mirroring_module_has_a_name_for_its_figures():
    words = tomllib.loads((PATH.parent / "areas.toml").read_text())
    modules = {module for row in ROWS for module in row.used_by.split()}
    assert all(area_of(module, words) for module in modules)
    paths = [path.relative_to(ROOT).as_posix() for path in own_modules(FOLDERS)]
    assert all(any(path.startswith(start) for path in paths) for start in words), "an area of no module"


def test_homes_are_modules():
    assert [module for module in HOMES if not (ROOT / module).is_file()] == []


SAMPLE = (
    "planner/strategy/fsdp2/passes.py",
    "planner/memory/allocator/heap.py",
    "planner/capture/answers/devices/cuda.py",
)


@pytest.mark.parametrize("module", SAMPLE)
def test_what_a_module_names_and_patches_stands_in_the_table(module):
    found = Gathered()
    found.take(module, (ROOT / module).read_text(encoding="utf-8"))
    assert found.users, "the sample names nothing"
    table = {(row.project, row.file, row.symbol) for row in ROWS if module in row.used_by.split()}
    assert set(found.users) <= table, "`make upstream`"


@pytest.mark.slow
def test_what_is_named_is_in_the_table_and_what_is_in_the_table_is_named():
    now = {(row.project, row.file, row.symbol): row.used_by for row in rows()}
    table = {(row.project, row.file, row.symbol): row.used_by for row in ROWS}
    assert now == table, "`make upstream`"


@pytest.fixture
def edited(monkeypatch):
    """Puts another text in place of an installed file's."""

    def edit(file, change):
        text = (site_of(file.split("/")[0]) / file).read_text(encoding="utf-8")
        changed = change(text)
        assert changed != text
        monkeypatch.setattr(moved, "source_of", lambda name: Source(changed) if name == file else source_of(name))

    return edit


FSDP = GROUPS["torch/distributed/fsdp"]


def test_one_edited_function_fails_one_digest(edited):
    before = "    def unshard(self, async_op: bool = False):\n"
    edited(GROUP, lambda text: text.replace(before, f"{before}        self._training_state = None\n"))
    (part,) = moved_parts(FSDP)
    assert (part.file, part.symbol) == (GROUP, "FSDPParamGroup.unshard")
    assert "planner/strategy/fsdp2/passes.py" in part.used_by.split()


def test_comments_docstrings_and_layout_do_not_count(edited):
    before = "    def unshard(self, async_op: bool = False):\n"
    after = '    def unshard(\n        self, async_op: bool = False\n    ):\n        "Said anew."\n        # and why\n'
    edited(GROUP, lambda text: text.replace(before, after))
    assert moved_parts(FSDP) == []


def test_a_symbol_that_is_gone_is_named(edited):
    edited(GROUP, lambda text: text.replace("def unshard(", "def gather("))
    assert "FSDPParamGroup.unshard" in [part.symbol for part in moved_parts(FSDP)]


def test_a_file_that_is_gone_is_named():
    row = next(row for row in FSDP if row.digest)
    gone = dataclasses.replace(row, file="torch/distributed/fsdp/no_such_file.py")
    assert moved_parts([gone]) == [gone]


def test_equal_versions_say_nothing_and_read_no_source(monkeypatch):
    monkeypatch.setattr(moved, "source_of", lambda file: pytest.fail(file))
    assert moved_line() is None


def test_another_version_that_says_the_same_is_one_line(monkeypatch):
    monkeypatch.setattr(moved, "installed", lambda names: {"peft": "9.9"})
    said = moved_line()
    assert said is not None
    assert "peft 9.9 (read: " in said
    assert said.endswith("every mirrored part says the same")
    assert "\n" not in said


def test_another_version_names_what_differs_and_what_rests_on_it(edited, monkeypatch):
    monkeypatch.setattr(moved, "installed", lambda names: {"torch": "2.99.0+cu130"})
    monkeypatch.setattr(moved, "held", lambda: FSDP)
    edited(GROUP, lambda text: text.replace("def unshard(", "def gather("))
    said = moved_line()
    assert "torch 2.99.0 (read: 2.13.0, 1 of " in said
    assert f"{GROUP}: FSDPParamGroup.unshard" in said
    assert said.endswith("on the older source rest: FSDP2 and HSDP")


def test_nothing_is_imported_for_it():
    code = (
        "import sys; from gpu_plan.planner.upstream import moved\n"
        "moved.installed = lambda names: {'torch': '2.99', 'peft': '9.9'}\n"
        "moved.held = lambda: [row for row in __import__('gpu_plan.planner.upstream.table', fromlist=['held']).held()"
        " if row.project == 'peft' or 'fsdp' in row.file]\n"
        "assert moved.moved_line(); print({'torch', 'peft', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"
