"""Where a user's own modules are found, and what a child's variables are while this package starts it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_plan.planner.neighbours import GIVEN, NEEDED, entries, give_back, keep_out, stand_first, standard_library
from gpu_plan.planner.own_python import ROOT, own_command, own_environment
from tests.support.own_sources import imported, may_import, sources

REPOSITORY = Path(__file__).resolve().parents[3]


def test_what_this_package_imports_is_what_is_kept_from_the_users_folders():
    """bitsandbytes is never imported, but looked up."""
    found = {"bitsandbytes", "gpu_plan", *sys.stdlib_module_names}
    for where, text in sources():
        if where.startswith("planner/capture/recipes/"):
            continue  # scripts that are run as a user's are
        if may_import(text) - found:
            found |= imported(text)
    assert found - sys.stdlib_module_names - {"pytest"} == NEEDED


def test_python_is_started_in_one_place():
    """`sys.executable` elsewhere is a path to look beside, or a fact to write down."""
    found = {where for where, text in sources() if "sys.executable" in text}
    looked_beside = {
        "executor/launch/prepare.py",
        "executor/supervise/machine.py",
        "planner/hardware/engines/ray.py",
    }
    rays_own = {f"executor/engines/kinds/ray/{name}.py" for name in ("exported", "group", "nodes")}  # on Ray's nodes
    assert found == {"planner/own_python.py", *looked_beside, *rays_own}


@pytest.mark.parametrize("before", [None, "", "/a", "/a:", ".:/b"])
@pytest.mark.parametrize("added", ["", ":/by/a/launcher"])
def test_variables_come_back_as_they_were(before, added, tmp_path):
    given = {"HOME": "/h"} if before is None else {"HOME": "/h", "PYTHONPATH": before}
    child = own_environment(given, directory=tmp_path)
    assert child["PYTHONSAFEPATH"] == "1"
    nested = own_environment(child, directory=tmp_path)
    assert nested == child, "a child's child is told what the user had"
    nested["PYTHONPATH"] += added
    give_back(nested)
    whole = f"{before or ''}{added}" if before is not None else added.removeprefix(":")
    assert nested == ({"HOME": "/h"} if before is None and not added else {"HOME": "/h", "PYTHONPATH": whole})


def test_a_users_safe_path_comes_back():
    child = own_environment({"PYTHONSAFEPATH": "yes"})
    assert child["PYTHONSAFEPATH"] == "1"
    give_back(child)
    assert child == {"PYTHONSAFEPATH": "yes"}


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"A": 1}', '{"A": [null]}', "\udcff"])
def test_a_variable_of_somebody_elses_is_left_out(text):
    environment = {GIVEN: text, "A": "b"}
    give_back(environment)
    assert environment == {"A": "b"}


def test_what_somebody_set_since_stays():
    child = own_environment({"PYTHONPATH": "/a"}) | {"PYTHONPATH": "/mine"}
    give_back(child)
    assert child == {"PYTHONPATH": "/mine"}


def test_pythonpath_keeps_neither_folder_and_begins_with_the_standard_library(tmp_path):
    script = tmp_path / "scripts" / "train.py"
    link = tmp_path / "link"
    link.symlink_to(tmp_path, target_is_directory=True)
    words = [".", "", "lib", str(tmp_path), str(script.parent), "/elsewhere", str(link), "lib/.."]
    child = own_environment({"PYTHONPATH": os.pathsep.join(words)}, directory=tmp_path, script=script)
    found = child["PYTHONPATH"].split(os.pathsep)
    standard = standard_library()
    assert found[: len(standard)] == standard
    assert found[len(standard) : len(standard) + 2] == [str(tmp_path / "lib"), "/elsewhere"]
    assert ROOT in found
    assert not {str(tmp_path), str(script.parent), "", "."} & set(found)


def test_entries_are_absolute():
    assert entries("", "/w") == []
    assert entries("a::/b:.", "/w") == ["/w/a", "/w", "/b", "/w"]


def test_folders_stand_between_the_standard_library_and_the_rest(monkeypatch):
    monkeypatch.setattr(sys, "path", ["/first", *standard_library(), "/packages"])
    stand_first(["/mine", "/packages"])
    assert sys.path == [*standard_library(), "/mine", "/packages", "/first"]


def test_only_what_is_needed_is_kept_out_and_only_where_it_is_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("yaml", "planner"):
        (tmp_path / f"{name}.py").write_text("")
    from importlib.util import find_spec

    loaded = sys.modules.pop("yaml", None)
    try:
        assert find_spec("yaml").origin == str(tmp_path / "yaml.py")
        keep_out([str(tmp_path)])
        keep_out([str(tmp_path / "other")])
        assert sum(type(finder).__name__ == "_Guard" for finder in sys.meta_path) == 1
        assert "site-packages" in find_spec("yaml").origin
        assert find_spec("planner").origin == str(tmp_path / "planner.py")
        monkeypatch.setattr(sys, "path", [str(tmp_path), *standard_library()])
        assert find_spec("yaml").origin == str(tmp_path / "yaml.py"), "not installed: the user's own is found as usual"
    finally:
        if loaded is not None:
            sys.modules["yaml"] = loaded


def test_a_planted_standard_library_is_not_imported_by_a_child(tmp_path):
    """Not even by the interpreter's own start, and not under a PYTHONPATH that names the working directory."""
    for name in ("json", "types", "typing", "encodings", "contextlib", "runpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(f'imported {__name__}')\n")
    (tmp_path / "train.py").write_text("import json, os, sys\nprint(json.dumps(sys.path), os.environ['PYTHONPATH'])\n")
    given = os.pathsep.join([".", *entries(os.environ.get("PYTHONPATH", ""), os.getcwd())])
    environment = own_environment({**os.environ, "PYTHONPATH": given}, directory=tmp_path)
    done = subprocess.run(
        [*own_command("gpu_plan.executor.runner"), "train.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    path, _, variable = done.stdout.rstrip("\n").rpartition(" ")
    standard = standard_library()
    assert json.loads(path)[: len(standard) + 1] == [*standard, str(tmp_path)]
    assert variable == given


def test_the_command_as_a_module_takes_nothing_from_the_working_directory(tmp_path):
    """Where `python -m` itself has put that first; but for the few modules that python imports before ours."""
    for name in ("json", "torch", "numpy", "yaml", "rich", "planner", "executor", "reports", "tui"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(f'imported {__name__}')\n")
    done = subprocess.run(
        [sys.executable, "-m", "gpu_plan", "gpus", "H100"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "H100" in done.stdout
