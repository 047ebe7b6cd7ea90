"""GGUF headers: what llama.cpp's layout says, and files that lie."""

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_plan.planner.errors import InputError, UnreachableError
from gpu_plan.planner.model.quantization.gguf.file import TYPES, read_gguf, read_gguf_file
from tests.support.gguf_writer import header, text, write

TENSORS = {"token_embd.weight": ((64, 256), "Q4_K"), "blk.0.attn_q.weight": ((256, 256), "Q8_0"), "x": ((7,), "F32")}


def read(raw: bytes, size: int | None = None) -> object:
    return read_gguf(lambda at, length: raw[at : at + length], len(raw) if size is None else size, "m.gguf")


def whole() -> bytes:
    raw, data = header(TENSORS)
    return raw + b"\0" * data


def test_a_header_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write(path, TENSORS)
    file = read_gguf_file(path)
    assert file.architecture == "llama"
    assert file.tensors["token_embd.weight"].shape == (64, 256)
    assert file.tensors["token_embd.weight"].bytes == 64 * 144
    assert file.tensors["blk.0.attn_q.weight"].bytes == 256 * 8 * 34
    assert file.tensors["x"].type == "F32"


def test_bits_per_weight_are_those_that_llama_cpp_prints() -> None:
    """ggml-org/llama.cpp tools/quantize: 4.5 for Q4_K, 6.5625 for Q6_K, 8.5 for Q8_0, 2.0625 for IQ2_XXS."""
    bits = {name: 8 * size / block for name, block, size in TYPES.values()}
    expected = {"Q4_0": 4.5, "Q4_K": 4.5, "Q5_K": 5.5, "Q6_K": 6.5625, "Q8_0": 8.5, "Q2_K": 2.625, "Q3_K": 3.4375}
    expected |= {"IQ2_XXS": 2.0625, "IQ2_XS": 2.3125, "IQ3_XXS": 3.0625, "IQ4_XS": 4.25, "IQ1_S": 1.5625}
    assert {name: bits[name] for name in expected} == expected


def test_every_cut_is_told_in_one_line() -> None:
    raw, _ = header(TENSORS)
    for length in range(len(raw)):
        with pytest.raises(InputError) as caught:
            read(raw[:length])
        assert "not a usable GGUF file" in str(caught.value)
        assert "\n" not in str(caught.value)


def mutated(offset: int, packed: bytes) -> bytes:
    raw = whole()
    return raw[:offset] + packed + raw[offset + len(packed) :]


@pytest.mark.parametrize(
    ("offset", "packed", "told"),
    [
        (0, b"GGML", "does not begin with GGUF"),
        (4, struct.pack("<I", 1), "version is 1"),
        (8, struct.pack("<Q", 2**60), "tensors"),
        (16, struct.pack("<Q", 2**60), "keys"),
        (24, struct.pack("<Q", 2**63), "claims"),
    ],
)
def test_length_bombs_cost_nothing(offset: int, packed: bytes, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read(mutated(offset, packed))


def one(entry: bytes, pairs: bytes = b"", count: int = 1, number: int = 0) -> bytes:
    keys = text("general.architecture") + struct.pack("<I", 8) + text("llama") + pairs
    return b"GGUF" + struct.pack("<IQQ", 3, count, 1 + number) + keys + entry


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (one(text("w") + struct.pack("<IQIQ", 1, 32, 99, 0)), "unknown type 99"),
        (one(text("w") + struct.pack("<IQIQ", 1, 33, 2, 0)), "no valid shape for Q4_0"),
        (one(text("w") + struct.pack("<I", 5) + b"\0" * 60), "5 dimensions"),
        (one(text("w") + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 0)), "no valid shape"),
        (one(text("w") + struct.pack("<IQIQ", 1, 32, 0, 2**62)), "beyond the file"),
        (one(text("w") + struct.pack("<IQIQ", 1, 32, 0, 7)), "beyond the file"),
        (one(2 * (text("w") + struct.pack("<IQIQ", 1, 0, 0, 0)), count=2), "twice"),
        (one(b"", text("a") + struct.pack("<I", 77), 0, 1), "unknown type 77"),
        (one(b"", text("a") + struct.pack("<IIQ", 9, 9, 3), 0, 1), "holds the type 9"),
        (one(b"", text("a") + struct.pack("<IIQ", 9, 6, 2**61), 0, 1), "cut off"),
        (one(b"", text("a") + struct.pack("<IIQ", 9, 8, 2**61), 0, 1), "claims"),
        (one(b"", text("a") + struct.pack("<IIQ", 9, 8, 10**6), 0, 1), "cut off"),
        (one(b"", text("general.alignment") + struct.pack("<II", 4, 3), 0, 1), "alignment is 3"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "names no general.architecture"),
    ],
)
def test_lies_are_told_in_one_line(raw: bytes, told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        read(raw + (b"\0" * 64 if told == "twice" else b""))
    assert "\n" not in str(caught.value)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_damage_is_an_input_error_or_nothing(data: st.DataObject) -> None:
    raw = bytearray(whole()[:500])
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(0, 499))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InputError):
        read(bytes(raw), size=10**9)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="No such file"):
        read_gguf_file(tmp_path / "none.gguf")
