"""Configurations of preference and reinforcement learning, read by a few lines that share nothing with `plan`.

Defaults: trl 1.16 (trainer/{dpo,grpo}_config.py, experimental/orpo/orpo_config.py), LLaMA-Factory 0.9.5
(hparams/finetuning_args.py). Where a key is not in the file and the tool has no fixed default, nothing is expected.
"""

from pathlib import Path

from benchmarks.corpus.configurations.families.llamafactory import llamafactory
from benchmarks.corpus.configurations.families.reading import Content, Read
from benchmarks.corpus.configurations.families.trainers import trl

_STAGES = {"dpo": "dpo", "kto": "kto", "rm": "reward"}


def _trl(table: Content, root: Path, path: str) -> Read:
    """TRL's own keys; its trainers of several models are planned without Liger's kernels, which has to be said."""
    read = trl(table, root, path)
    if read.options.pop("kernels.liger", None):
        read.said.append("use_liger")
    return read


def of_pairs(table: Content, root: Path, path: str) -> Read:
    """DPO and ORPO of TRL: which one the path says. Pairs have a limit of their own, 1,024 tokens by default."""
    read = _trl(table, root, path)
    read.options["recipe"] = "orpo" if "orpo" in path else "dpo"
    read.options["seq-len"] = table.get("max_length") or 1024
    if "max_prompt_length" in table:
        read.options["prompt-len"] = table["max_prompt_length"]
    return read


def of_completions(table: Content, root: Path, path: str) -> Read:
    """GRPO of TRL: eight completions of 512 tokens; a reference model where `beta` is not zero, as it is by default."""
    read = _trl(table, root, path)
    out = read.options
    del out["seq-len"]  # there is none: a prompt and its completion
    out["recipe"] = "grpo"
    out["generations"] = table.get("num_generations", 8)
    out["completion-len"] = table.get("max_completion_length", 512)
    if "max_prompt_length" in table:
        out["prompt-len"] = table["max_prompt_length"]
    if "beta" in table:
        out["reference"] = "none" if float(table["beta"]) == 0 else "kept"
    out["vllm"] = table.get("vllm_mode", "colocate") if table.get("use_vllm") else None
    if "vllm_gpu_memory_utilization" in table and table.get("use_vllm"):
        out["gpu-memory-utilization"] = table["vllm_gpu_memory_utilization"]
    return read


def of_stages(table: Content, root: Path, path: str) -> Read:
    """LLaMA-Factory: the job is its `stage`."""
    read = llamafactory(table, root, path)
    read.options["recipe"] = _STAGES[table["stage"]]
    return read
