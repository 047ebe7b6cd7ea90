"""What quantised models store, against what the real libraries write after quantising on the CPU."""

import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.quantization import parse_quantize
from gpu_plan.planner.model.quantization.apply import quantise
from tests.accuracy.architectures import ARCHITECTURES

STATE_DIGITS = 4
"""bitsandbytes writes the mean of the scales as text: its length depends on the numbers."""


def references(architectures: str, words: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Headers that the real libraries wrote, from one process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.quantised_reference", architectures, words],
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, dict[str, dict[str, Any]]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def differences(architecture: str, word: str, real: dict[str, Any]) -> list[str]:
    """Tensors that the two hold otherwise; the length of bitsandbytes' state text may differ by its digits."""
    scheme = parse_quantize(word)
    assert scheme is not None
    facts = quantise(build_model(ARCHITECTURES[architecture].config(), dtype=torch.bfloat16), scheme)
    mine = {name: [list(shape), dtype] for name, (shape, dtype) in facts.checkpoint.items()}
    found = [f"{name}: only in one" for name in mine.keys() ^ real.keys()]
    for name in mine.keys() & real.keys():
        is_text = ".quant_state." in name and word.endswith("-dq")
        close = is_text and abs(mine[name][0][0] - real[name][0][0]) <= STATE_DIGITS
        if mine[name] != real[name] and not close:
            found.append(f"{name}: {mine[name]}, really {real[name]}")
    return found


def check(architectures: str, words: str) -> None:
    for architecture, by_word in references(architectures, words).items():
        assert set(by_word) == set(words.split(","))
        for word, real in by_word.items():
            assert len(real) > 10
            assert differences(architecture, word, real) == [], f"{architecture} {word}"


@pytest.mark.slow
def test_every_stored_tensor_is_the_real_one() -> None:
    check("llama-3", "int8,nf4-dq,torchao-int8")


@pytest.mark.slow
def test_every_stored_tensor_of_more_models() -> None:
    check("llama-3,qwen2,gemma-2", "int8,nf4,nf4-dq,fp4,fp4-dq,torchao-int8,torchao-float8")
    check("gpt2", "int8,nf4,fp4-dq")


@pytest.mark.slow
def test_elements_of_merged_experts() -> None:
    """transformers writes Mixtral's experts one by one under older names: elements by type are compared."""
    for word, real in references("mixtral", "int8,nf4")["mixtral"].items():
        scheme = parse_quantize(word)
        assert scheme is not None
        facts = quantise(build_model(ARCHITECTURES["mixtral"].config(), dtype=torch.bfloat16), scheme)
        assert elements(facts.checkpoint.values()) == elements(real.values())


def elements(stored: Iterable[Any]) -> Counter[str]:
    """Elements by dtype."""
    found: Counter[str] = Counter()
    for shape, dtype in stored:
        found[dtype] += math.prod(shape)
    return found
