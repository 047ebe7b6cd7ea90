"""Files that others wrote: regular files alone, in bounded time and memory, and one line for what they are not."""

import os
import pickle
import socket

import pytest

from gpu_plan.cli import main
from gpu_plan.executor import names
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.foreign.as_json import json_value
from gpu_plan.planner.foreign.as_toml import toml_table
from gpu_plan.planner.foreign.as_yaml import MAX_NODES, yaml_value
from gpu_plan.planner.foreign.files import NotAFileError, open_regular, read_bytes
from gpu_plan.planner.foreign.limits import MalformedError
from gpu_plan.planner.snapshot.read import read_history
from tests.support.calls import calls_of

MODEL = "EleutherAI/pythia-70m"
LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(20)
)
MERGES = "a: &a {k: 1}\n" + "".join(f"b{n}: &b{n} {{<<: [*{p}, *{p}]}}\n" for n, p in
                                   enumerate(["a", *[f"b{n}" for n in range(24)]]))  # fmt: skip


@pytest.fixture(params=["fifo", "folder", "socket", "device", "proc", "zero", "link"])
def odd(request, tmp_path, monkeypatch):
    """A path that is there and no file; nobody writes the FIFO."""
    path = tmp_path / "odd.json"
    if request.param == "fifo":
        os.mkfifo(path)
    elif request.param == "folder":
        path.mkdir()
    elif request.param == "socket":
        monkeypatch.chdir(tmp_path)  # a socket's path is short
        server = socket.socket(socket.AF_UNIX)
        server.bind("odd.json")
        server.close()
    elif request.param == "link":
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to(tmp_path / "pipe")
    else:
        path.symlink_to({"device": "/dev/null", "proc": "/proc/self/environ", "zero": "/dev/zero"}[request.param])
    return path


def test_what_is_no_file_is_not_waited_for(odd):
    with pytest.raises((NotAFileError, IsADirectoryError)) as refused:
        read_bytes(odd, 100)
    assert refused.value.strerror.startswith("it is a ")
    assert refused.value.filename == str(odd)


@pytest.mark.parametrize(
    "words",
    [
        ("PATH", "--gpus", "1xT4"),
        ("--execute", "PATH", "--plan", "x.json"),
        ("--execute", "x.py", "--plan", "PATH"),
        ("diff", "PATH", "PATH"),
        ("diff", "--snapshot", "PATH", "PATH"),
        ("report", "PATH"),
        ("from-config", "PATH"),
        ("doctor", "PATH"),
        ("doctor", "x.py", "--plan", "PATH"),
        ("export", "PATH", "--to", "accelerate"),
        ("explore", "--plan", "PATH"),
        (MODEL, "--gpus", "1xT4", "--task", "infer", "--device-map", "PATH"),
        ("x.gguf", "--gpus", "1xT4"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("odd", ["fifo"], indirect=True)
def test_every_option_that_takes_a_path(words, odd, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("pass\n")
    os.mkfifo(tmp_path / "x.gguf")
    before = sorted(tmp_path.iterdir())
    code = main([str(odd) if word == "PATH" else word for word in words])
    out, err = capsys.readouterr()
    assert code in (2, 3, 4)
    assert out == ""
    assert err.startswith("plan: error: ")
    assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "name",
    ["config.json", "model.safetensors", "model.safetensors.index.json", "plan.toml", "pyproject.toml"],
)
def test_every_file_of_a_folder(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama", "num_hidden_layers": 99}')
    place = tmp_path if name.endswith(".toml") else tmp_path / "model"
    (place / name).unlink(missing_ok=True)
    os.mkfifo(place / name)
    codes = []
    assert calls_of(lambda: codes.append(main(["./model", "--gpus", "0xH100", "--pin"]))) < 1_000_000
    assert codes[0] in (2, 3)
    assert capsys.readouterr().err.count("\n") == 1


def test_files_themselves_are_read(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"")
    assert read_bytes(path, 10) == b""
    path.write_bytes(b"0123456789ab")
    assert read_bytes(path, 10) == b"0123456789"
    with open_regular(path) as file:
        assert os.get_blocking(file.fileno())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LAUGHS, "unfolds"),
        (MERGES, "unfolds"),
        ("a: &a [*a]", "part of itself"),
        ("&a {x: *a}", "part of itself"),
        ("{a: " * 60_000, "nested too deeply"),
        ("[" * 700, "nested too deeply"),
        ("- " * 100_000, "nested too deeply"),
        ("a: 0x" + "f" * 9000, "a number of 9002 characters"),
        ("a: 1" + ":11" * 9000, "a number of"),
        ("a: " + "9" * 9000, "a number of 9000"),
        ("x" * 2**18 + "x", "larger than"),
        ("a: !!python/object/apply:os.system [ls]", "is not valid YAML"),
        ("a: !!timestamp 2001-99-99", "is not valid YAML"),
        ("a: 2001-99-99", "is not valid YAML"),
        ("? [a]\n: b", "is not valid YAML"),
        ("!!binary x", "is not valid YAML"),
        ("!!int x", "is not valid YAML"),
        ("a\x00b", "is not valid YAML"),
        (b"\xff\xfea", "UTF-8"),
        ("a: b\n---\nc: d", "is not valid YAML"),
        ("*a", "is not valid YAML"),
    ],
)
def test_yaml_is_bounded(text, said):
    made = []

    def read():
        with pytest.raises(MalformedError) as refused:
            yaml_value(text)
        made.append(str(refused.value))

    assert calls_of(read) < 6_000_000
    assert said in made[0]
    assert len(made[0]) < 300


def test_yaml_that_is_sound_is_what_safe_load_makes_of_it():
    import yaml

    text = "base: &b {x: 1, y: [1, 2.5, yes]}\nmore: {<<: *b, x: 2}\nlist: [*b, *b]\nx: 1\nx: 2\nday: 2001-01-01\n"
    assert yaml_value(text) == yaml.safe_load(text)
    assert yaml_value("") is None
    assert yaml_value("a: &a 1\nb: [" + "*a," * 1000 + "]")["b"] == [1] * 1000
    assert MAX_NODES < 10**6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 500_000, "nested too deeply"),
        ('{"a":' * 200_000, "nested too deeply"),
        ("[" * 65 + "]" * 65, "nested too deeply"),
        ("9" * 400, "an integer of 400 digits"),
        ("1e999", "beyond all bounds"),
        ("NaN", "not a number"),
        ("Infinity", "not a number"),
        ('"\\ud800"', "surrogate"),
        (b"\xff", "UTF-8"),
        (" ", "empty"),
        ("{", "line 1, column 2"),
        ("[" + "[]," * 4_000_001, "more than 4,000,000 lists"),
    ],
)
def test_json_is_bounded(text, said):
    with pytest.raises(MalformedError, match=said):
        json_value(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "[" * 300_000, "nested too deeply"),
        ("a = " + "{b = " * 100_000, "nested too deeply"),
        (".".join(["a"] * 200_000) + " = 1", "key of more than 32 parts"),
        ("[" + ".".join(['"a"'] * 200_000) + "]", "key of more than 32 parts"),
        ("a = " + "9" * 9000, "is not valid TOML"),
        ("a = 1\na = 2", "is not valid TOML"),
        ("a = 2001-99-99", "is not valid TOML"),
        ("x" * 2**20, "is not valid TOML"),
        ("#" * 2**20 + "#", "larger than 1 MiB"),
        ("\xff", "is not valid TOML"),
    ],
)
def test_toml_is_bounded(text, said):
    def read():
        with pytest.raises(MalformedError, match=said):
            toml_table(text.encode("latin-1"))

    assert calls_of(read) < 3_000_000


def test_toml_that_is_sound_is_read():
    assert toml_table(b'[tool.plan]\ngpus = "8xH100"\nx = "1.2.3.4.5"\n')["tool"] == {
        "plan": {"gpus": "8xH100", "x": "1.2.3.4.5"}
    }


@pytest.mark.parametrize("stem", ["rank-²", "rank-٣", "rank-", "rank--1", "rank-1e3", "rank-" + "9" * 5000, "x"])
def test_what_is_no_rank(stem):
    assert names.rank_of(stem) is None
    assert names.rank_of("rank-12") == 12


def snapshot(size=512, filename="a.py"):
    frame = {"filename": filename, "line": 3, "name": "f"}
    event = {"action": "alloc", "addr": 1, "size": size, "stream": 0, "frames": [frame]}
    return pickle.dumps({"segments": [], "device_traces": [[event]]})


def test_a_snapshots_sizes_are_bytes():
    assert read_history(snapshot(), "x").allocations[0].nbytes == 512
    with pytest.raises(InputError, match="size is not a number of bytes"):
        read_history(snapshot(10**400), "x")


def test_a_snapshots_names_are_text():
    """Lists that hold one another twice, forty times over: `str` of them has 2**40 pieces."""
    nested = []
    for _ in range(40):
        nested = [nested, nested]
    history = read_history(snapshot(filename=nested), "x")
    assert history.allocations[0].frames[0].file == ""


def test_a_pickles_memo_is_bounded():
    """Eight bytes that ask for a memo of 2**32 places, which the C unpickler fills at once."""
    with pytest.raises(InputError, match="not a memory snapshot"):
        read_history(b"\x80\x04}r\xff\xff\xff\x7f.", "x")
