"""Callbacks after an import, and scripts run as python would run them."""

import importlib
import subprocess
import sys

import pytest

from gpu_plan.executor.runner.imports import PostImport


@pytest.fixture
def watching(tmp_path, monkeypatch):
    (tmp_path / "outer_package").mkdir()
    (tmp_path / "outer_package" / "__init__.py").write_text("from outer_package import inner\nready = True\n")
    (tmp_path / "outer_package" / "inner.py").write_text("value = 1\n")
    (tmp_path / "broken_module.py").write_text("raise OSError('half')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    failures = []
    imports = PostImport(lambda name, error: failures.append((name, str(error))))
    imports.failures = failures
    imports.install()
    yield imports
    sys.meta_path.remove(imports)
    for name in ("outer_package", "outer_package.inner", "broken_module"):
        sys.modules.pop(name, None)


def test_a_hook_runs_once_after_the_module_is_whole(watching):
    seen = []
    watching.when("outer_package", lambda module: seen.append(module.ready))
    watching.when("outer_package.inner", lambda module: seen.append(module.value))
    module = importlib.import_module("outer_package")
    assert seen == [1, True]
    watching.when("outer_package.inner", lambda module: seen.append("at once"))
    assert seen == [1, True, "at once"]
    assert "exec_module" not in vars(module.__loader__)


def test_a_hook_that_fails_does_not_fail_the_import(watching):
    watching.when("outer_package.inner", lambda module: 1 / 0)
    assert importlib.import_module("outer_package").ready
    assert watching.failures == [("outer_package.inner", "division by zero")]


def test_a_module_that_fails_raises_its_own_error_and_may_be_tried_again(watching):
    seen = []
    watching.when("broken_module", seen.append)
    for _ in range(2):
        with pytest.raises(OSError, match="half"):
            importlib.import_module("broken_module")
    assert seen == []


SCRIPT = """
import atexit, json, pickle, sys
class Thing: pass
print(json.dumps([sys.argv, __name__, __file__, __spec__ is None, __package__, __doc__]))
import beside
atexit.register(lambda: print(type(pickle.loads(pickle.dumps(Thing()))) is Thing))
"""


def test_a_script_sees_what_it_would_see_under_python(tmp_path):
    script = tmp_path / "folder" / "train.py"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    (script.parent / "beside.py").write_text("print(__file__)\n")
    link = tmp_path / "link.py"
    link.symlink_to(script)
    for path in (script, link):
        words = [str(path), "--lr", "1"]
        plain = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=tmp_path, check=True)
        ours = subprocess.run(
            [sys.executable, "-m", "gpu_plan.executor.runner", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=True,
        )
        assert ours.stdout == plain.stdout
        assert str(script.parent / "beside.py") in ours.stdout, "a link's neighbours are those of what it leads to"
        assert ours.stdout.endswith("True\n")


def test_the_runner_brings_nothing_with_it(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import sys\nprint(*sorted(sys.modules))\n")
    done = subprocess.run(
        [sys.executable, "-m", "gpu_plan.executor.runner", str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    modules = set(done.stdout.split())
    heavy = {"torch", "numpy", "psutil", "rich", "yaml", "accelerate", "transformers"}
    assert not heavy & {name.partition(".")[0] for name in modules}
    planner = {name for name in modules if name.startswith("gpu_plan.planner")}
    assert planner == {"gpu_plan.planner", "gpu_plan.planner.neighbours"}, "the latter needs the standard library alone"
