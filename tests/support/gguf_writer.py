"""Writes GGUF files whose data is a hole: headers as llama.cpp's own writer lays them out."""

import math
import struct
from collections.abc import Mapping
from pathlib import Path

from gpu_plan.planner.model.quantization.gguf.file import TYPES

_NUMBERS = {name: number for number, (name, _, _) in TYPES.items()}


def text(value: str) -> bytes:
    """A length, then UTF-8."""
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def header(
    tensors: Mapping[str, tuple[tuple[int, ...], str]], *, architecture: str = "llama", words: int = 3
) -> tuple[bytes, int]:
    """Everything before the data, padded, and the data's length; shapes are in torch's order."""
    pairs = [
        text("general.architecture") + struct.pack("<I", 8) + text(architecture),
        text("general.file_type") + struct.pack("<II", 4, 15),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, words) + b"".join(text("a") for _ in range(words)),
        text("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, words) + struct.pack(f"<{words}f", *[0.0] * words),
    ]
    entries, offset = b"", 0
    for name, (shape, kind) in tensors.items():
        _, block, size = TYPES[_NUMBERS[kind]]
        entries += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        entries += struct.pack("<IQ", _NUMBERS[kind], offset)
        offset += -(-math.prod(shape) // block * size // 32) * 32
    raw = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + entries
    return raw + b"\0" * (-len(raw) % 32), offset


def write(path: Path, tensors: Mapping[str, tuple[tuple[int, ...], str]], *, architecture: str = "llama") -> None:
    """The file, its data sparse."""
    raw, data = header(tensors, architecture=architecture)
    with path.open("wb") as file:
        file.write(raw)
        file.truncate(len(raw) + data)
