"""Safetensors headers: what is stored, what differs, and what a damaged file says."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.planner.errors import InputError, PlanError
from gpu_plan.planner.model.source.folder_headers import read_file, read_folder
from gpu_plan.planner.model.source.headers import MAX_HEADER, collect, differences, read_header, shard_names

SIZES = {"F32": 4, "BF16": 2, "I64": 8}


def safetensors(tensors: dict, *, data: bool = True) -> bytes:
    """A safetensors file: name to (dtype, shape)."""
    header, place = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape) in tensors.items():
        length = SIZES[dtype]
        for size in shape:
            length *= size
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, place + length]}
        place += length
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(place if data else 0)


def read(raw: bytes):
    return read_header(lambda offset, length: raw[offset : offset + length], len(raw), "w.safetensors")


def test_reads_names_shapes_and_dtypes():
    stored = collect([read(safetensors({"a": ("BF16", (3, 4)), "b": ("F32", (5,))}))])
    assert stored.entries == {"a": ((3, 4), "bfloat16"), "b": ((5,), "float32")}
    assert (stored.tensors, stored.parameters, stored.bytes) == (2, 17, 44)
    assert stored.by_dtype == {"bfloat16": 12, "float32": 5}


def test_agrees_with_the_safetensors_library(tmp_path):
    numpy = pytest.importorskip("numpy")
    library = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "model.safetensors"
    library.save_file({"x": numpy.zeros((2, 3), "float16"), "y": numpy.zeros((), "int64")}, path)
    assert read_file(path) == {"x": ((2, 3), "float16"), "y": ((), "int64")}


def _with(entry) -> bytes:
    raw = json.dumps({"a": entry}).encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(8)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x01\x00",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", MAX_HEADER + 1) + b"{}",
        struct.pack("<Q", 100) + b"{}",
        struct.pack("<Q", 3) + b"{x}",
        b"version https://git-lfs.github.com/spec/v1\n",
        _with(7),
        _with({"dtype": "F33", "shape": [2], "data_offsets": [0, 8]}),
        _with({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}),
        _with({"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}),
        _with({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}),
        _with({"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}),
        _with({"dtype": "F32", "shape": [2], "data_offsets": [8]}),
    ],
)
def test_damaged_files_are_refused_in_one_line(raw):
    with pytest.raises(InputError, match=r"w\.safetensors") as caught:
        read(raw)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_give_tensors_or_one_line(raw, framed):
    raw = struct.pack("<Q", len(raw)) + raw if framed else raw
    try:
        result = read(raw)
    except PlanError as error:
        result = str(error)
    assert isinstance(result, dict) or "\n" not in result


def test_a_folder_is_read_through_its_index(tmp_path):
    (tmp_path / "m-1.safetensors").write_bytes(safetensors({"a": ("F32", (2,))}))
    (tmp_path / "m-2.safetensors").write_bytes(safetensors({"b": ("F32", (3,))}))
    (tmp_path / "consolidated.safetensors").write_bytes(safetensors({"all": ("F32", (5,))}))
    stored, _ = read_folder(tmp_path)
    assert set(stored.entries) == {"a", "b"}
    index = {"weight_map": {"a": "m-1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    stored, notes = read_folder(tmp_path)
    assert set(stored.entries) == {"a"}
    assert notes == ()


def test_a_folder_says_why_there_is_nothing_to_read(tmp_path):
    assert read_folder(tmp_path) == (None, ())
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    assert read_folder(tmp_path) == (None, ("the weights are pickles: not read",))
    (tmp_path / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "git-lfs" in read_folder(tmp_path)[1][0]
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "gone.safetensors"}}')
    assert "1 of 1 weight files are missing (gone.safetensors)" in read_folder(tmp_path)[1][0]


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "a\\b.safetensors", "x.bin"])
def test_an_index_cannot_name_files_elsewhere(name):
    raw = json.dumps({"weight_map": {"a": name}}).encode()
    with pytest.raises(InputError, match="is not a file beside it"):
        shard_names(raw, "index")


def test_differences_name_count_dtype_and_shape():
    stored = collect([read(safetensors({"emb": ("BF16", (10, 4)), "head": ("BF16", (10, 4)), "w": ("BF16", (4,))}))])
    built = {"emb": ((10, 4), "torch.float32"), "w": ((2, 2), "torch.float32")}
    count, dtype, shape = differences(stored, built)
    assert "holds 84 values, the model 44: 40 more are stored, such as head" in count
    assert dtype == "the checkpoint is stored as bfloat16, the model is built as float32"
    assert shape == "w is [4] in the checkpoint and [2, 2] in the model"


def test_a_faithful_checkpoint_has_no_differences():
    stored = collect([read(safetensors({"w": ("F32", (4,))}))])
    assert differences(stored, {"w": ((4,), "float32")}) == []
