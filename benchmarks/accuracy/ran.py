"""Whose code ran a row, as its own fields tell: what a reader of a line must know to judge it.

Beside `software`, which says whose step can be made again, this names every stack that a row tells, and says so where
none is told. Nothing is assumed of a row: a list of packages with transformers in it tells no loop.
"""

import re
from dataclasses import dataclass

from benchmarks.accuracy.row import Row, software_group, text

UNKNOWN = "unknown software"
_FIELDS = ("software", "strategy", "group", "source")
_NAMED = (
    ("unsloth", "unsloth"),
    ("axolotl", "axolotl"),
    ("llama-factory", "llama-factory"),
    ("llamafactory", "llama-factory"),
    ("ms-swift", "ms-swift"),
    ("fsdp_qlora", "fsdp_qlora"),
    ("litgpt", "litgpt"),
    ("lit-gpt", "litgpt"),
    ("torchtune", "torchtune"),
    ("torchtitan", "torchtitan"),
    ("torchao", "torchtitan"),
    ("pytorch/ao", "torchtitan"),
    ("internevo", "internevo"),
    ("llm-foundry", "llm-foundry"),
    ("colossalai", "colossalai"),
    ("kempnerforge", "kempnerforge"),
    ("primus", "primus"),
    ("nemo", "nemo"),
    ("bigscience", "megatron-deepspeed"),
    ("megatron-deepspeed", "megatron-deepspeed"),
    ("vtrain", "megatron-deepspeed"),
    ("megatron", "megatron"),
    ("liger", "liger-kernel"),
    ("ik_llama.cpp", "llama.cpp"),
    ("llama.cpp", "llama.cpp"),
    ("vllm", "vllm"),
    ("trl", "trl"),
    ("transformers", "transformers"),
    ("autoawq", "autoawq"),
    ("gptq-for-llama", "gptq-for-llama"),
    ("exllama", "exllama"),
)
"""Words that name a project in a field, and what it is called here: a project before those that it builds on.

Kernels for packed weights stand last: beside transformers they are parts of it. Runs of torchao's benchmarks are
torchtitan's, with its layers.
"""
_BETWEEN = r"(?<![a-z0-9]){}(?![a-z])"


@dataclass(frozen=True, slots=True, kw_only=True)
class RanBy:
    """A stack and where the row says so."""

    stack: str
    told_by: str
    """Field of the row; empty where none tells it."""


def ran_by(row: Row) -> RanBy:
    """The first stack that a field names: what software it lists, then how it ran, its group, its source."""
    for name in _FIELDS:
        told = software_group(row) if name == "group" else text(row, name)
        stack = _stack_in(told.lower())
        if stack is not None:
            return RanBy(stack=stack, told_by=name)
    return RanBy(stack=UNKNOWN, told_by="")


def _stack_in(told: str) -> str | None:
    return next((stack for word, stack in _NAMED if re.search(_BETWEEN.format(re.escape(word)), told)), None)
