"""torchtune's YAML: every part is named by its Python path.

Meanings and defaults, of 0.7: recipes/full_finetune_distributed.py, recipes/lora_finetune_single_device.py and their
counterparts (pure types, FSDP2 above one device), torchtune/_recipe_registry.py (which recipe a file is of, told by its
name), torchtune/models/llama3/_model_builders.py and its like.
"""

import re
from collections.abc import Mapping

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.from_config.formats.hub_names import hub_id
from gpu_plan.planner.from_config.formats.shared import (
    clipping,
    compiled,
    say_adapters,
    say_component_optimizer,
    say_otherwise,
    say_stack,
)
from gpu_plan.planner.from_config.reading import Reading, of_several_models
from gpu_plan.planner.from_config.signs import Content
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.strategy.known import strategy_by
from gpu_plan.planner.strategy.traits import Engine
from gpu_plan.planner.workload.precisions import PLAIN_PRECISION, pure_in
from gpu_plan.planner.workload.stacks.registry import Stack

_PATH = "_component_"
_MODELS = "torchtune.models."
_ALONE = "single_device"
_LOSS = "LinearCrossEntropyLoss"
_TARGETS = {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "output_proj": "o_proj"}
_MLP = ("gate_proj", "up_proj", "down_proj")
_FUSED_WEIGHTS = ("phi3", "phi4")
"""Builders whose q, k, v and MLP are single matrices on the hub."""
_DEGREES = {"tensor_parallel_dim": "tp", "context_parallel_dim": "cp"}
_TYPES = {"bf16": "bfloat16", "fp32": "float32"}
_OTHERWISE = {
    "quantizer": "planned without the fake quantisation of weights and activations",
    "optimizer_in_bwd": "planned with all gradients held until the step",
    "enable_activation_offloading": "what is kept is offloaded there, planned is that it stays on the GPU",
    "enable_fp8_training": "planned without float8",
    "custom_sharded_layers": "planned with one unit per layer, and the rest",
    "ac_mode": "planned with every layer checkpointed",
    "enable_async_checkpointing": "planned without the copy of weights and states that waits on the host to be written",
    "resize_token_embeddings": "planned with the model's own vocabulary",
}
_PASSED = ("activation_offloading_use_streams", "ac_option", "fp8_recipe_name", "tensor_parallel_plan")
"""Of use beside keys that are said, or refused, alone."""


def _signs(content: Content) -> tuple[str, ...]:
    """torchtune/config/_instantiate.py"""
    return tuple(f"{key}.{_PATH}" for key, value in content.items() if isinstance(value, Mapping) and _PATH in value)


SIGNS = _signs


def read(reading: Reading) -> None:
    """Notes what `tune run` would do with the recipe that the file is written for."""
    table = reading.table = Table(_followed(reading.table), reading.table.where)
    builder = _builder(reading, table)
    _trains(reading, table)
    for key, option in _DEGREES.items():
        if (table.count(key) or 1) > 1:
            raise UsageError(
                f"{table.where}: {key} above 1 is not planned as torchtune does it: say the job with the options of"
                f" `plan MODEL`, of which --{option} is the nearest"
            )
    say_stack(reading, Stack.TORCHTUNE, "torchtune runs a loop of its own")
    _model(reading, table, builder)
    _batch(reading, table)
    _types(reading, table)
    _optimizer(reading, table)
    on = table.flag("enable_activation_checkpointing")
    source = "torchtune's default" if on is None else f"enable_activation_checkpointing: {str(on).lower()}"
    reading.say("checkpointing", "full" if on else "none", source)
    _adapters(reading, table, builder)
    _loss(reading, table)
    say_otherwise(reading, table, _OTHERWISE)
    for key in _PASSED:
        table.raw(key)
    _packing(reading, table)
    _profiler(reading, table)
    parts = table.table("compile") if isinstance(table.peek("compile"), Mapping) else None
    if table.flag("compile") if parts is None else parts.flag("model") is not False:
        compiled(
            reading, "compile: true" if parts is None else "compile.model: true"
        )  # _model_builders: True if absent
    _evaluation(reading, table)
    norm = table.raw("clip_grad_norm")
    if norm is not None and str(norm).lower() != "inf":
        clipping(reading, table.rate("clip_grad_norm"), "clip_grad_norm")
    _spread(reading, table)


_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_NESTED = 4
"""References that lead to references."""


def _followed(table: Table) -> dict[str, object]:
    """The file's content with `${other.key}` followed, as OmegaConf does; what is computed stays as it is written."""
    whole = {key: table.peek(key) for key in table.listed()}
    return {key: _settled(value, whole, _NESTED) for key, value in whole.items()}


def _settled(value: object, whole: Mapping[str, object], depth: int) -> object:
    if isinstance(value, Mapping):
        return {key: _settled(item, whole, depth) for key, item in value.items()}
    if not isinstance(value, str) or depth == 0:
        return value
    one = _REFERENCE.fullmatch(value)
    if one is not None:
        found = _found(one[1], whole)
        return value if found is None else _settled(found, whole, depth - 1)
    return _REFERENCE.sub(lambda part: str(_plain(_found(part[1], whole), part[0])), value)


def _plain(value: object, written: str) -> object:
    return value if isinstance(value, str | int | float) else written


def _found(dotted: str, whole: Mapping[str, object]) -> object:
    """What a dotted key leads to; None for nothing, or for a table."""
    here: object = whole
    for part in dotted.split("."):
        here = here.get(part) if isinstance(here, Mapping) else None
    return None if isinstance(here, Mapping) else here


def _packing(reading: Reading, table: Table) -> None:
    """torchtune/datasets/_sft.py and its like: `packed` rows are as long as tokenizer.max_seq_len."""
    data = table.table("dataset") if isinstance(table.peek("dataset"), Mapping) else None
    if data is not None and data.flag("packed"):
        reading.notes.append("dataset.packed: true: rows are full, as planned")


def _profiler(reading: Reading, table: Table) -> None:
    inner = table.table("profiler") if isinstance(table.peek("profiler"), Mapping) else None
    if inner is not None and inner.flag("enabled"):
        reading.approximate("profiler.enabled: true: planned without a profiler")


def _evaluation(reading: Reading, table: Table) -> None:
    """Of `dataset_val` after every so many steps: recipes/full_finetune_distributed.py, lora_finetune_distributed.py
    (validate; batch_size_val is batch_size unless written); the recipes for one device (0.7) have none."""
    size, every = table.count("batch_size_val"), table.count("run_val_every_n_steps")
    if not table.peek("dataset_val") or every is None:
        return
    if _for_one_device(table):
        reading.notes.append("run_val_every_n_steps: torchtune's recipes for one device do not evaluate")
        return
    source = f"batch_size_val: {size}" if size else "torchtune's default, batch_size"
    reading.set("eval.batch", size or int(reading.value("micro-batch") or 1), f"dataset_val, {source}")


def _builder(reading: Reading, table: Table) -> str:
    """`llama3_1.lora_llama3_1_8b`"""
    model = table.table("model")
    path = None if model is None else model.word(_PATH)
    if path is None or not path.startswith(_MODELS):
        raise reading.contradiction(f"model.{_PATH} must be a builder of {_MODELS}: nothing else says what is trained")
    return path.removeprefix(_MODELS)


def _trains(reading: Reading, table: Table) -> None:
    """Refuses evaluation, generation and quantisation, whose recipes have no optimizer, and jobs of several models."""
    loss = table.table("loss")
    path = "" if loss is None else loss.word(_PATH) or ""
    if ".rlhf." in path or any(
        table.has(key) for key in ("ref_checkpointer", "reward_and_value_model", "forward_batch_size")
    ):
        raise of_several_models(f"{table.where}: preference training or reinforcement learning")
    if not table.has("optimizer") or loss is None:
        raise reading.contradiction("there is no optimizer or no loss: the recipe trains nothing")
    for key in ("kd_loss", "teacher_model", "early_exit_loss", "layer_dropout"):
        if table.has(key):
            raise reading.contradiction(f"{key} is not planned for: one model and its own loss are")


def _model(reading: Reading, table: Table, builder: str) -> None:
    """The folder of the weights carries the hub's own name."""
    weights = table.table("checkpointer")
    folder = None if weights is None else weights.word("checkpoint_dir")
    reading.model = None if folder is None else hub_id(folder)
    if reading.model is None:
        reading.notes.append(f"model.{_PATH}: {builder} is planned as the MODEL that you name")
    else:
        reading.notes.append(f"checkpointer.checkpoint_dir: {folder} is taken for {reading.model}")


def _batch(reading: Reading, table: Table) -> None:
    micro, steps = table.count("batch_size"), table.count("gradient_accumulation_steps")
    if micro is None:
        raise table.wrong("batch_size", "a whole number of 1 or more")
    reading.say("micro-batch", micro, f"batch_size: {micro}")
    reading.say("grad-accum", steps or 1, f"gradient_accumulation_steps: {steps}" if steps else "torchtune's default")
    tokenizer = table.table("tokenizer")
    length = None if tokenizer is None else tokenizer.count("max_seq_len")
    if length is None:
        reading.notes.append(
            "tokenizer.max_seq_len is empty: samples are as long as the data's, name it with --seq-len"
        )
    else:
        reading.say("seq-len", length, f"tokenizer.max_seq_len: {length}")


def _types(reading: Reading, table: Table) -> None:
    name = table.word("dtype") or ""
    if name not in _TYPES:
        raise table.wrong("dtype", "bf16 or fp32")
    dtype = _TYPES[name]
    reading.say("precision", PLAIN_PRECISION if dtype == "float32" else pure_in(dtype), f"dtype: {name}")


def _optimizer(reading: Reading, table: Table) -> None:
    inner = table.table("optimizer")
    path = None if inner is None else inner.word(_PATH)
    if inner is None or path is None:
        raise table.wrong("optimizer", f"a table with {_PATH}")
    say_component_optimizer(reading, path, f"optimizer.{_PATH}: {path}", fused=bool(inner.flag("fused")))


def _adapters(reading: Reading, table: Table, builder: str) -> None:
    family, _, name = builder.rpartition(".")
    model = table.table("model")
    assert model is not None
    packed = name.startswith("qlora_") or bool(model.flag("quantize_base"))
    if not packed and not name.startswith("lora_"):
        return
    say_adapters(reading, f"model.{_PATH}: {builder}", quantised=packed, because="its base is NF4")
    rank, share = model.count("lora_rank"), model.rate("lora_dropout")
    reading.say("lora-rank", rank or 8, f"model.lora_rank: {rank}" if rank else "torchtune's default")
    if share:
        reading.set("lora.dropout", share, f"model.lora_dropout: {share}")
    if packed:
        reading.set("quant.double", True, "torchtune's NF4 quantises the scales as well")
    targets = [_TARGETS.get(part, part) for part in model.names("lora_attn_modules")]
    targets += _MLP if model.flag("apply_lora_to_mlp") else ()
    targets += ("lm_head",) if model.flag("apply_lora_to_output") else ()
    if family in _FUSED_WEIGHTS:
        reading.approximate("model.lora_attn_modules: on the hub these are one matrix: planned with all linear layers")
        reading.say("lora-targets", "all-linear", "model.lora_attn_modules")
    elif targets:
        reading.say("lora-targets", ",".join(targets), "model.lora_attn_modules")
    if model.flag("use_dora"):
        reading.approximate("model.use_dora: true: planned as plain LoRA")


def _loss(reading: Reading, table: Table) -> None:
    loss = table.table("loss")
    path = None if loss is None else loss.word(_PATH)
    name = (path or "").rpartition(".")[2]
    if name not in ("", _LOSS):
        reading.approximate(f"loss.{_PATH}: {name}: planned as torchtune's {_LOSS}, in chunks")


def _for_one_device(table: Table) -> bool:
    """Whether the file's name says so: torchtune has recipes of their own for that."""
    return _ALONE in table.where.replace("\\", "/").rpartition("/")[2]


def _spread(reading: Reading, table: Table) -> None:
    """Several devices share by FSDP2, or by groups of them (recipes/full_finetune_distributed.py: ParallelDims)."""
    replicas, shards = table.count("data_parallel_replicate_dim") or 1, table.raw("data_parallel_shard_dim")
    fixed = shards if isinstance(shards, int) and not isinstance(shards, bool) and shards > 0 else None
    sharded = strategy_by(Engine.FSDP2, replicates=replicas > 1).name
    if fixed is not None and (replicas > 1 or fixed > 1):
        reading.processes = replicas * fixed
    if replicas > 1:
        reading.say("dp-replicate", replicas, f"data_parallel_replicate_dim: {replicas}")
        reading.say("strategy", sharded, f"data_parallel_replicate_dim: {replicas}")
    reading.cpu = table.word("device") == "cpu"
    if _for_one_device(table):
        reading.processes = 1
    reading.plain, reading.many = replicas == 1, sharded
    count = reading.count
    if count is None or count == 1:
        return
    offload = table.flag("fsdp_cpu_offload")
    reading.say("offload", "all" if offload else "none", f"fsdp_cpu_offload: {str(bool(offload)).lower()}")
    keeps = table.flag("fsdp_reshard_after_forward")
    if keeps is not None:
        reading.set("fsdp.reshard_after_forward", keeps, f"fsdp_reshard_after_forward: {str(keeps).lower()}")
