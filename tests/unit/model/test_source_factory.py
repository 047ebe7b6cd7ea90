"""`package.module:factory`: found without import, loaded with one-line errors, known by its files."""

import importlib
import sys

import pytest

from gpu_plan.planner.errors import InputError, UnreachableError
from gpu_plan.planner.model.source.resolve import files_digest, load_factory, resolve, user_files_digest


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A user's project as working directory; its modules are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "proj_x" / "deep"
    package.mkdir(parents=True)
    (tmp_path / "proj_x" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("raise RuntimeError('imported too early')\n")
    (tmp_path / "helper_x.py").write_text("WIDTH = 8\n")
    (tmp_path / "made_x.py").write_text(
        "import json\nimport helper_x\nprint('noise')\n"
        "class Box:\n    @staticmethod\n    def make():\n        return helper_x.WIDTH\n"
        "def build():\n    return 'model'\n"
        "def needy(width, *, depth=1):\n    return width\n"
        "VALUE = 3\n"
    )
    importlib.invalidate_caches()
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0].endswith("_x"):
            del sys.modules[name]


def test_resolving_does_not_import(project):
    (project / "proj_x" / "deep" / "model.py").write_text("raise RuntimeError('imported')\n")
    source = resolve("proj_x.deep.model:build")
    assert (source.kind, source.id, source.config) == ("factory", "proj_x.deep.model:build", None)
    assert source.path == project / "proj_x" / "deep" / "model.py"
    assert "proj_x" not in sys.modules


def test_the_digest_follows_the_module(project):
    first = resolve("made_x:build").digest
    (project / "made_x.py").write_text("def build(): return 2\n")
    assert resolve("made_x:build").digest != first


def test_a_factory_is_loaded_and_its_noise_kept_from_stdout(project, capsys):
    assert load_factory(resolve("made_x:build"))() == "model"
    assert load_factory(resolve("made_x:Box.make"))() == 8
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "noise" in captured.err


def test_user_files_are_told_from_installed_ones(project):
    before = frozenset(sys.modules)
    load_factory(resolve("made_x:build"))
    paths, digest = user_files_digest(before)
    assert paths == (str(project / "helper_x.py"), str(project / "made_x.py"))
    assert digest == files_digest(paths)
    (project / "helper_x.py").write_text("WIDTH = 16\n")
    assert files_digest(paths) != digest
    (project / "helper_x.py").unlink()
    assert files_digest(paths) != digest


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("raise ValueError('first\\nsecond')", "ValueError: first second"),
        ("def broken(:", "SyntaxError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("import nothing_of_the_kind_x", "ModuleNotFoundError"),
    ],
)
def test_a_failing_import_is_one_line_with_its_place(project, content, said):
    (project / "boom_x.py").write_text("\n" + content + "\n")
    importlib.invalidate_caches()
    source = resolve("boom_x:build")
    with pytest.raises(InputError) as caught:
        load_factory(source)
    assert said in str(caught.value)
    assert "boom_x.py:2" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("made_x:biuld", "has no 'biuld': name a function in it. Did you mean build?"),
        ("made_x:VALUE", "is a int"),
        ("made_x:needy", "needs the argument 'width'"),
    ],
)
def test_what_cannot_be_called_is_refused(project, name, said):
    with pytest.raises(InputError) as caught:
        load_factory(resolve(name))
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["absent_x:build", "made_x.inner:build", "proj_x.absent:build"])
def test_an_absent_module_is_unreachable(project, name):
    with pytest.raises(UnreachableError, match="is not found from"):
        resolve(name)


def test_a_factory_below_folders_without_init_is_found(project):
    (project / "spaces_x" / "inner").mkdir(parents=True)
    module = project / "spaces_x" / "inner" / "model_x.py"
    module.write_text("def build():\n    return 'model'\n")
    source = resolve("spaces_x.inner.model_x:build")
    assert source.path == module
    assert load_factory(source)() == "model"
    with pytest.raises(UnreachableError, match=r"spaces_x\.inner\.none_x is not found"):
        resolve("spaces_x.inner.none_x:build")
