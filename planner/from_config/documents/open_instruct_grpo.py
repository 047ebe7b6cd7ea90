"""open-instruct's GRPO: its learners as a job document, and its engines, which roll out meanwhile on GPUs of their own.

open-instruct of 2026-08 (e6c3044a): open_instruct/grpo_fast.py (PolicyTrainerRayProcess.from_pretrained: weights in
bf16 under DeepSpeed, always checkpointed; the reference sharded under stage 3 alone; train: packs of pack_length),
open_instruct/grpo_utils.py (GRPOExperimentConfig, forward_for_logprobs), open_instruct/data_loader.py (defaults of
lengths, engines and their share).
"""

from collections.abc import Sequence

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.documents.asked import Asked
from gpu_plan.planner.from_config.documents.open_instruct import TOOL
from gpu_plan.planner.from_config.documents.written import Table, Written, phase
from gpu_plan.planner.from_config.shell.words import options_of
from gpu_plan.planner.strategy.known import strategy_by
from gpu_plan.planner.strategy.traits import Engine
from gpu_plan.planner.workload.losses import GATHERED
from gpu_plan.planner.workload.optimizers.registry import by_word
from gpu_plan.planner.workload.precisions import mixed_in, pure_in

MODULE = "open_instruct/grpo_fast.py"
_USUAL: dict[str, object] = {
    "pack_length": 512, "max_prompt_token_length": 256, "response_length": 256, "per_device_train_batch_size": 1,
    "num_mini_batches": 1, "load_ref_policy": True, "deepspeed_stage": 0, "sequence_parallel_size": 1,
    "num_learners_per_node": "1", "vllm_num_engines": 1, "vllm_tensor_parallel_size": 1,
    "vllm_gpu_memory_utilization": 0.9, "fused_optimizer": False,
}  # fmt: skip
_NODE = 8
"""GPUs of a node."""
_OLDER = {"actor_num_gpus_per_node": "num_learners_per_node"}
"""Words of older releases."""


def of_command(words: Sequence[str], where: str, model: str | None) -> Written:
    """The job of a command line. InputError in one line for what a document cannot say."""
    said = {_OLDER.get(key, key): value for key, value in options_of(words).items()}
    asked = Asked(where, said, _USUAL)
    path = model or asked.model("model_name_or_path")
    if path is None:
        raise InputError(f"{where} names no model: plan from-config {where} MODEL")
    asked.refuse("sequence_parallel_size", (1,), "sequences cut among learners are not in a document")
    prompt, answer = asked.count("max_prompt_token_length") or 256, asked.count("response_length") or 256
    length = max(asked.count("pack_length") or 512, 2)
    models: dict[str, Table] = {"policy": _policy(asked, path)}
    phases = _engine_phases(asked, path, models, (prompt, answer))
    if asked.flag("load_ref_policy"):
        models["reference"] = _reference(asked, path)
        phases.append(phase("reference log-probabilities", "log-probabilities", ["reference"], 1))
    if (asked.count("num_mini_batches") or 1) > 1:
        phases.append(phase("old log-probabilities", "log-probabilities", ["policy"], 1))
    phases.append(phase("update", "train", ["policy"], asked.count("per_device_train_batch_size") or 1))
    first = min(prompt, length - 1)
    return Written(
        where=where,
        tool=TOOL,
        name="open-instruct GRPO",
        prompt_len=first,
        completion_len=length - first,
        models=models,
        phases=phases,
        gpus=_learners(asked) + _engines(asked),
        notes=tuple(_notes(asked, path, prompt + answer)),
    )


def _learners(asked: Asked) -> int:
    """Devices that train, of all nodes: `--num_learners_per_node 8 8`."""
    words = (asked.text("num_learners_per_node") or "1").replace("[", " ").replace("]", " ").replace(",", " ").split()
    if not words or not all(word.isdecimal() and 0 < int(word) < 2**20 for word in words):
        raise InputError(f"{asked.where}: num_learners_per_node: whole numbers are needed there, one for each node")
    return sum(int(word) for word in words)


def _notes(asked: Asked, path: str, context: int) -> list[str]:
    """What is planned otherwise than it runs."""
    found = [f"packs of {asked.count('pack_length') or 512} tokens are samples of as many"]
    if _engines(asked):
        found.append("engines roll out while learners train: a step takes the longer of the two, not their sum")
    elif not asked.flag("single_gpu_mode"):
        engines, ranks = _copies(asked)
        found.append(
            f"{engines} engines of {ranks} GPUs and {_learners(asked)} learners are no whole nodes of {_NODE}: engines"
            f" are left out (plan {path} --task infer --server vllm --gpus {ranks}xGPU --context {context})"
        )
    return found


def _copies(asked: Asked) -> tuple[int, int]:
    """Engines, and the devices of each."""
    return asked.count("vllm_num_engines") or 1, asked.count("vllm_tensor_parallel_size") or 1


def _engines(asked: Asked) -> int:
    """Devices of the engines' own; 0 where one lies on the learner's, or where a document cannot place them."""
    engines, ranks = _copies(asked)
    whole = engines * ranks
    if asked.flag("single_gpu_mode"):
        return 0
    return whole if _learners(asked) + whole <= _NODE or (whole % _NODE == 0 and _learners(asked) % _NODE == 0) else 0


def _policy(asked: Asked, path: str) -> Table:
    stage = asked.count("deepspeed_stage") or 0
    if not stage:
        raise InputError(f"{asked.where}: deepspeed_stage 0: DeepSpeed without sharding is not in a document")
    chosen = by_word("adamw_torch_fused" if asked.flag("fused_optimizer") else "adamw_torch")
    assert chosen is not None
    moved = "optimizer" if asked.flag("deepspeed_offload_optimizer") else "none"
    return {
        "model": path,
        "train": True,
        "strategy": strategy_by(Engine.DEEPSPEED, stage=stage).name,
        "offload": "all" if asked.flag("deepspeed_offload_param") else moved,
        "precision": mixed_in("bfloat16"),
        "checkpointing": "full",
        "attention": "flash",
        "optimizer": chosen.name,
        "loss": GATHERED,
    }


def _reference(asked: Asked, path: str) -> Table:
    """get_eval_ds_config: of stage 3 it is sharded too, else whole."""
    found: Table = {"model": path, "precision": pure_in("bfloat16"), "attention": "flash", "loss": GATHERED}
    stage = asked.count("deepspeed_stage")
    return {**found, "strategy": strategy_by(Engine.DEEPSPEED, stage=3).name} if stage == 3 else found


def _engine_phases(asked: Asked, path: str, models: dict[str, Table], lengths: tuple[int, int]) -> list[Table]:
    """Of the engines, which join the models: on the learner's own GPU, or on others."""
    engines, ranks = _copies(asked)
    if not asked.flag("single_gpu_mode") and not _engines(asked):
        return []
    apart: Table = {} if asked.flag("single_gpu_mode") else {"where": "server", "copies": engines}
    models["engine"] = {
        "model": path,
        "engine": "vllm",
        "share": asked.number("vllm_gpu_memory_utilization") or 0.9,
        "tensor_parallel": ranks,
        **apart,
        **({"eager": True} if asked.flag("vllm_enforce_eager") else {}),
    }
    rollout = phase("rollout", "generate", ["engine"])
    rollout |= {"prompt_len": lengths[0], "completion_len": lengths[1]}
    return [phase("weight sync", "sync", ["engine"]), rollout]
