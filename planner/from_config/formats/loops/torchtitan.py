"""torchtitan's TOML, and its Python as torchtitan_registry reads it.

Meanings and defaults, of 0.2.2: torchtitan/config/job_config.py, models/*/infra/parallelize.py (FSDP2 over the ranks
that are left, fp32 weights computed in bfloat16), distributed/activation_checkpoint.py.
"""

from collections.abc import Mapping

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.from_config.formats.hub_names import hub_id
from gpu_plan.planner.from_config.formats.shared import (
    clipping,
    compiled,
    say_mixed,
    say_otherwise,
    say_stack,
    settings_of,
)
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.signs import first, together
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.strategy.known import strategy_by
from gpu_plan.planner.strategy.traits import Engine
from gpu_plan.planner.workload.optimizers.registry import by_word
from gpu_plan.planner.workload.precisions import pure_in
from gpu_plan.planner.workload.stacks.registry import Stack

SIGNS = first(together("model", "training", "parallelism"), together("model", "training", "activation_checkpoint"))

_WHOSE = "torchtitan"
_TENSOR = "tensor_parallel_degree"
_DEGREES = {"pipeline_parallel_degree": "pp", "expert_parallel_degree": "ep", "context_parallel_degree": "cp"}
"""What torchtitan does in a way of its own that is not planned, and the option of the way that is."""
_OF_DEGREES = (
    "enable_async_tensor_parallel", "expert_tensor_parallel_degree", "pipeline_parallel_schedule",
    "context_parallel_rotate_method", "disable_loss_parallel", "pipeline_parallel_microbatch_size",
)  # fmt: skip
_SHARDED = ("data_parallel_replicate_degree", "data_parallel_shard_degree")
_TOKENS, _CONTEXT = "num_tokens_per_microbatch_per_dp_rank", "max_context_length"
_NO_LANGUAGE = ("flux",)
_OWN_TOKENIZERS = ("/tokenizer", "/tokenizer.model")
"""What a path to a tokenizer ends in that says nothing of the model."""
_FLAVORS = {
    ("llama3", "8B"): "meta-llama/Llama-3.1-8B", ("llama3", "70B"): "meta-llama/Llama-3.1-70B",
    ("llama3", "405B"): "meta-llama/Llama-3.1-405B", ("llama2", "7B"): "meta-llama/Llama-2-7b-hf",
    ("llama2", "13B"): "meta-llama/Llama-2-13b-hf", ("llama2", "70B"): "meta-llama/Llama-2-70b-hf",
    **{("qwen3", size): f"Qwen/Qwen3-{size}" for size in ("0.6B", "1.7B", "4B", "8B", "14B", "32B")},
}  # fmt: skip
"""The hub's model of the same sizes where no folder names one: torchtitan/models/{llama3,qwen3}/__init__.py."""
_OF_DEBUGGING = {
    "deterministic": "planned with kernels that need not be deterministic",
    "moe_force_load_balance": "planned with tokens as the routers spread them",
    "detect_anomaly": "planned without anomaly detection",
    "batch_invariant": "planned with kernels that are not batch invariant",
}
_OF_PROFILING = dict.fromkeys(("enable_profiling", "enable_memory_snapshot"), "planned without a profiler")
_OF_SAVING = {"async_mode": "planned without the copy of weights and states that waits on the host to be written"}
_OPTIMIZERS = {"fused": "adamw_torch_fused", "foreach": "adamw_torch", "for-loop": "adamw_hf"}


def read(reading: Reading) -> None:
    """Notes what `torchrun ... torchtitan.train --job.config_file` would do."""
    model, training = _inner(reading, "model"), _inner(reading, "training")
    _model(reading, model)
    _spread(reading, training)
    say_stack(reading, Stack.TORCHTITAN, "torchtitan runs a loop of its own")
    _batch(reading, training)
    _precision(reading, model, training)
    _optimizer(reading, _inner(reading, "optimizer"))
    _checkpointing(reading, _inner(reading, "activation_checkpoint"))
    norm = training.rate("max_norm")
    clipping(reading, 1.0 if norm is None else norm, "training.max_norm")
    _evaluation(reading, _inner(reading, "validator" if reading.table.has("validator") else "validation"), training)
    for place in (training, _inner(reading, "debug")):
        say_otherwise(reading, place, _OF_DEBUGGING)
    for name in ("profiling", "profiler"):
        say_otherwise(reading, _inner(reading, name), _OF_PROFILING)
    saving = _inner(reading, "checkpoint")
    if (saving.word("async_mode") or "disabled") != "disabled":
        say_otherwise(reading, saving, _OF_SAVING)
    _graphs(reading, training)
    loss = _inner(reading, "loss").word("name")
    if loss == "ChunkedLossWrapper":  # torchtitan/components/loss.py
        reading.approximate(
            "loss: ChunkedLossWrapper: planned with whole logits, of which it holds an eighth at a time"
        )
    elif loss not in (None, "CrossEntropyLoss"):
        reading.approximate(f"loss: {loss}: planned as cross entropy")
    compilation = _inner(reading, "compile")
    compilation.raw("components")
    if compilation.flag("enable") or training.flag("compile"):
        compiled(reading, "compile.enable: true")


def _inner(reading: Reading, key: str) -> Table:
    found = reading.table.table(key)
    return reading.inner({}, key) if found is None else found


def _model(reading: Reading, model: Table) -> None:
    name, flavor = model.word("name") or "llama3", model.word("flavor") or "debugmodel"
    if name.startswith(_NO_LANGUAGE):
        raise reading.contradiction(
            f"model.name: {name} is not a language model: such are not planned from a configuration"
        )
    key = next((key for key in ("hf_assets_path", "tokenizer_path") if model.has(key)), "hf_assets_path")
    assets = model.word(key)
    reading.model = hub_id(assets) if assets else None
    what = f"model.name: {name}, flavor: {flavor}"
    own = assets is None or assets.rstrip("/").endswith(_OWN_TOKENIZERS)
    if reading.model is None and own and (name, flavor) in _FLAVORS:
        reading.model = _FLAVORS[name, flavor]
        reading.notes.append(f"{what} has the sizes of {reading.model}")
    elif reading.model is None:
        reading.notes.append(f"{what} is planned as the MODEL that you name")
    else:
        reading.notes.append(f"{what}: model.{key} {assets} is taken for {reading.model}")


def _degrees(reading: Reading) -> tuple[Table, int]:
    """Where the degrees stand (a table of their own, or until 0.0.2 `training` and `experimental`), and that of --tp.

    Raises:
        UsageError: One that is not planned as torchtitan does it.
    """
    places = [_inner(reading, name) for name in ("parallelism", "training", "experimental")]
    tensor = 1
    for place in places:
        for key, option in _DEGREES.items():
            degree = place.count(key) or 1
            if degree > 1:
                raise UsageError(
                    f"{reading.table.where}: {place.name(key)} {degree} is not planned as torchtitan does it: say the"
                    f" job with the options of `plan MODEL`, of which --{option} is the nearest"
                )
        degree = place.count(_TENSOR) or 1
        if degree > 1:
            tensor = degree
            reading.say("tp", degree, f"{place.name(_TENSOR)}: {degree}")
            _beside(reading, place)
        for key in _OF_DEGREES:
            place.raw(key)  # of no use where each degree is 1
    return next((place for place in places if any(place.has(key) for key in _SHARDED)), places[0]), tensor


def _beside(reading: Reading, place: Table) -> None:
    """What changes memory or time beside a degree of tensor parallel."""
    if place.flag("disable_loss_parallel"):
        reading.approximate(f"{place.name('disable_loss_parallel')}: true: planned with logits cut over the ranks")
    if place.flag("enable_async_tensor_parallel"):
        reading.approximate(f"{place.name('enable_async_tensor_parallel')}: true: planned without the overlap")


def _spread(reading: Reading, training: Table) -> None:
    parallel, tensor = _degrees(reading)
    replicas = parallel.count("data_parallel_replicate_degree") or 1
    shards = parallel.raw("data_parallel_shard_degree")
    fixed = shards if isinstance(shards, int) and not isinstance(shards, bool) and shards > 0 else None
    if fixed is not None:
        reading.processes = replicas * fixed * tensor
    if replicas > 1 and fixed == 1:
        if tensor > 1:
            raise reading.contradiction(
                "data_parallel_shard_degree 1 beside replicas and tensor parallel: plan MODEL --strategy hsdp --tp"
                " shards as well, so leave it at -1"
            )
        reading.plain = True
        return
    source = f"parallelism.data_parallel_shard_degree: {shards if shards is not None else -1}"
    if replicas > 1:
        source = f"parallelism.data_parallel_replicate_degree: {replicas}"
        reading.say("strategy", strategy_by(Engine.FSDP2, replicates=True).name, source)
        reading.say("dp-replicate", replicas, source)
    elif tensor == 1 and (fixed == 1 or reading.count == 1):
        reading.plain = True
        return
    elif fixed == 1:
        reading.say("strategy", strategy_by(Engine.DTENSOR, stage=0).name, "data_parallel_shard_degree: 1")
        return
    else:
        reading.say("strategy", strategy_by(Engine.FSDP2).name, source)
    offload = bool(training.flag("enable_cpu_offload"))
    reading.say("offload", "all" if offload else "none", f"training.enable_cpu_offload: {str(offload).lower()}")
    keeps = parallel.word("fsdp_reshard_after_forward") or "default"
    if keeps != "default":
        reading.set("fsdp.reshard_after_forward", keeps == "always", f"parallelism.fsdp_reshard_after_forward: {keeps}")


def _batch(reading: Reading, training: Table) -> None:
    if training.has(_TOKENS) or training.has(_CONTEXT):
        _packed_batch(reading, training)
        return
    key = "batch_size" if training.has("batch_size") else "local_batch_size"  # its name before 0.1.0
    micro, length = training.count(key), training.count("seq_len")
    reading.say("micro-batch", micro or 8, f"training.{key}: {micro}" if micro else f"{_WHOSE}'s default")
    reading.say("seq-len", length or 2048, f"training.seq_len: {length}" if length else f"{_WHOSE}'s default")
    whole, steps = training.raw("global_batch_size"), training.count("gradient_accumulation_steps")
    if steps is not None:  # of forks: torchtitan itself has none
        reading.say("grad-accum", steps, f"training.gradient_accumulation_steps: {steps}")
    elif not isinstance(whole, int) or isinstance(whole, bool) or whole < 1:
        reading.say("grad-accum", 1, f"{_WHOSE}: a global batch of one micro batch on each rank")
    else:
        reading.say("global-batch", whole, f"training.global_batch_size: {whole}")


def _packed_batch(reading: Reading, training: Table) -> None:
    """Since 2026 batches are counted in tokens: rows of the context's length fill a micro batch."""
    tokens, length = training.count(_TOKENS) or 16384, training.count(_CONTEXT) or 2048
    if tokens % length:
        raise reading.contradiction(f"training.{_TOKENS} {tokens} is not a multiple of {_CONTEXT} {length}")
    reading.say("micro-batch", tokens // length, f"training.{_TOKENS}: {tokens} over {_CONTEXT} {length}")
    reading.say("seq-len", length, f"training.{_CONTEXT}: {length}")
    whole = training.raw("num_tokens_per_train_step")
    if not isinstance(whole, int) or isinstance(whole, bool) or whole < 1:
        reading.say("grad-accum", 1, f"{_WHOSE}: a step of one micro batch on each rank")
    elif whole % length:
        raise reading.contradiction(f"training.num_tokens_per_train_step {whole} is not a multiple of {length}")
    else:
        reading.say("global-batch", whole // length, f"training.num_tokens_per_train_step: {whole}")


def _precision(reading: Reading, model: Table, training: Table) -> None:
    converters = model.names("converters")
    if reading.value("strategy") == strategy_by(Engine.DTENSOR, stage=0).name:
        # torchtitan/distributed/utils.py, maybe_enable_amp: without FSDP beside it the types asked for have no effect.
        say_mixed(reading, "no", f"{_WHOSE}: tensor parallel alone computes in float32")
        return
    older = _inner(reading, "float8").flag("enable_float8_linear")  # until 0.0.2
    if older or any("float8" in name for name in converters):
        say_mixed(reading, "fp8", "float8.enable_float8_linear: true" if older else "model.converters: float8")
        _gathers(reading, _float8(reading))
    elif (training.word("dtype") or "float32") == "bfloat16":
        reading.say("precision", pure_in("bfloat16"), "training.dtype: bfloat16")
    elif (training.word("mixed_precision_param") or "bfloat16") == "float32":
        say_mixed(reading, "no", "training.mixed_precision_param: float32")
    else:
        say_mixed(reading, "bf16", f"{_WHOSE}'s default, training.mixed_precision_param: bfloat16")
    if not converters:
        for key in ("quantize", "float8"):
            reading.table.raw(key)  # of no use without them
    others = [name for name in converters if "float8" not in name]
    if others:
        reading.approximate(f"model.converters: {','.join(others)}: planned without")


def _float8(reading: Reading) -> Table:
    """`quantize.linear.float8` in 0.2, `float8` before."""
    linear = _within(_inner(reading, "quantize"), "linear")
    inner = None if linear is None else _within(linear, "float8")
    return _inner(reading, "float8") if inner is None else inner


def _within(table: Table, key: str) -> Table | None:
    return table.table(key) if isinstance(table.peek(key), Mapping) else None


def _gathers(reading: Reading, float8: Table) -> None:
    """torchtitan components/quantization/float8.py: a recipe leaves enable_fsdp_float8_all_gather as it is by itself,
    false."""
    key, recipe = "enable_fsdp_float8_all_gather", float8.word("recipe_name")
    for passed in ("precompute_float8_dynamic_scale_for_fsdp", "force_recompute_fp8_weight_in_bwd"):
        say_otherwise(reading, float8, {passed: "planned without"})
    if float8.names("filter_fqns"):
        reading.approximate(f"{float8.name('filter_fqns')}: planned with every linear layer but the head in float8")
    gathers = bool(float8.flag(key)) and recipe is None
    if recipe not in (None, "tensorwise"):
        reading.approximate(f"float8.recipe_name: {recipe}: planned with one scale for each tensor")
    if "fp8.all_gather" in settings_of(reading) and reading.value("tp") is None:
        source = f"float8.{key}: true" if gathers else f"{_WHOSE}'s default, float8.{key}: false"
        reading.set("fp8.all_gather", gathers, source if recipe is None else f"float8.recipe_name: {recipe}")


def _evaluation(reading: Reading, validation: Table, training: Table) -> None:
    """Forward passes between steps: torchtitan 0.2.2 config/job_config.py (Validation: 8 samples of 2048 tokens unless
    written, whatever the training's are), hf_datasets/text_datasets.py; where batches are counted in tokens,
    trainer.py hands the training's own on."""
    on = validation.flag("enable") or validation.flag("enabled")
    size, length = validation.count("local_batch_size"), validation.count("seq_len")
    if not on:
        return
    if training.has(_TOKENS) or training.has(_CONTEXT):
        reading.set(
            "eval.batch", int(reading.value("micro-batch") or 1), f"{validation.name('enable')}: true, as in training"
        )
        return
    source = f"local_batch_size: {size}" if size else f"{_WHOSE}'s default"
    reading.set("eval.batch", size or 8, f"validation.enable: true, {source}")
    planned = int(reading.value("seq-len") or 0)
    if (length or 2048) != planned:
        written = f"validation.seq_len: {length or 2048}{'' if length else f', {_WHOSE} default'}"
        reading.approximate(f"{written}: evaluation is planned with rows of {planned} tokens, as the training has")


def _graphs(reading: Reading, training: Table) -> None:
    """Since 2026-08 (f84224af, #3559) its trainer captures forward and backward as CUDA graphs unless told not to:
    torchtitan/trainer.py, distributed/cudagraph.py. Files that count batches in tokens are of that time."""
    off = training.flag("disable_cuda_graphs")
    if not off and (training.has(_TOKENS) or off is False):
        reading.approximate("training.disable_cuda_graphs is not set: planned without CUDA graphs and their pool")


def _optimizer(reading: Reading, optimizer: Table) -> None:
    name = optimizer.word("name") or "AdamW"
    way = optimizer.word("implementation") or "fused"
    if name not in ("Adam", "AdamW") or way not in _OPTIMIZERS:
        raise optimizer.wrong("name" if way in _OPTIMIZERS else "implementation", "AdamW, fused, foreach or for-loop")
    chosen = by_word(_OPTIMIZERS[way])
    assert chosen is not None
    reading.say("optimizer", chosen.name, f"optimizer.name: {name}, {way}")
    say_otherwise(reading, optimizer, {"early_step_in_backward": "planned with all gradients held until the step"})


def _checkpointing(reading: Reading, table: Table) -> None:
    mode, option = table.word("mode") or "selective", table.word("selective_ac_option") or "2"
    source = f"activation_checkpoint.mode: {mode}"
    if mode in ("none", "full"):
        reading.say("checkpointing", mode, source)
    elif mode == "selective" and option == "op":
        reading.say("checkpointing", mode, f"{source}, selective_ac_option: op")
    elif mode == "selective" and option.isdigit() and 0 < int(option) < 1000:
        reading.say("checkpointing", "full", f"{source}, selective_ac_option: {option}")
        if int(option) > 1:
            reading.set("checkpoint.every", int(option), f"activation_checkpoint.selective_ac_option: {option}")
    elif mode == "memory_budget":
        reading.approximate(f"{source}: planned without checkpoints")
        reading.say("checkpointing", "none", source)
    else:
        raise table.wrong("selective_ac_option" if mode == "selective" else "mode", "none, selective or full")
