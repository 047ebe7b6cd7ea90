"""Whose code made a row's step, as its own fields tell."""

import re
from enum import StrEnum

from benchmarks.accuracy.row import Row, SetAside, software_group, text
from gpu_plan.planner.memory.overheads import NCCL_VERSION


class Project(StrEnum):
    """Code whose step can be made again here."""

    TRAINER = "transformers"
    TORCHTITAN = "torchtitan"
    LITGPT = "litgpt"
    FSDP_QLORA = "fsdp_qlora"
    KEMPNERFORGE = "kempnerforge"


_PROJECTS = (
    ("torchtitan", Project.TORCHTITAN),
    ("torchao", Project.TORCHTITAN),
    ("pytorch/ao", Project.TORCHTITAN),
    ("litgpt", Project.LITGPT),
    ("fsdp_qlora", Project.FSDP_QLORA),
    ("kempnerforge", Project.KEMPNERFORGE),
)
_OWN_MODELS = (
    ("torchtune", "torchtune's own models and adapters"),
    ("megatron", "Megatron-LM's own models and parallelism"),
    ("bigscience", "Megatron-DeepSpeed's own models and parallelism"),
    ("primus", "Megatron-LM under Primus"),
    ("nemo", "Megatron-LM under NeMo"),
    ("vtrain", "Megatron-DeepSpeed's own models"),
    ("mlperf", "tuned code beyond stock Megatron-LM"),
    ("colossalai", "ColossalAI's own models"),
    ("internevo", "InternEvo's own models"),
    ("llm-foundry", "llm-foundry's own models"),
    ("fms-fsdp", "fms-fsdp's own models"),
    ("qwen-readme", "code of the model's own repository"),
)
"""Words of groups and sources, and what stands against a comparison."""
_TORCH = re.compile(r"\btorch[ =]+(\d+)\.(\d+)", re.IGNORECASE)
_OLDER_NCCL = (2, 21)
"""The newest that torch came with before 2.7 (.github/scripts/generate_binary_build_matrix.py; 2.4: 2.20.5)."""
_VERSION = re.compile(r"transformers[ =]+(\d+)\.(\d+)", re.IGNORECASE)


def project_of(row: Row) -> Project:
    """SetAside where the code is not mirrored, or nobody says whose it was."""
    for where in (software_group(row), text(row, "source"), text(row, "strategy")):
        for word, project in _PROJECTS:
            if word in where.lower():
                return project
        for word, reason in _OWN_MODELS:
            if word in where.lower():
                raise SetAside(f"{reason}: not mirrored")
    if "transformers" in text(row, "software").lower():
        return Project.TRAINER
    raise SetAside("does not say which software ran it")


def transformers_of(row: Row) -> tuple[int, int]:
    """Version with which the row ran. SetAside where it is not stated."""
    found = _VERSION.search(text(row, "software"))
    if found is None:
        raise SetAside("does not say which version of transformers ran it")
    return int(found[1]), int(found[2])


def nccl_of(row: Row) -> tuple[int, int]:
    """Version of NCCL that the row's torch came with, as far as it matters: an older one, or today's."""
    found = _TORCH.search(text(row, "software"))
    older = found is not None and (int(found[1]), int(found[2])) < (2, 7)
    return _OLDER_NCCL if older else NCCL_VERSION
