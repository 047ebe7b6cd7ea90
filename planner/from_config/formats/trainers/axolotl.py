"""axolotl's YAML.

Meanings and defaults, of 0.18: axolotl utils/schemas/{config,training,peft,fsdp}.py, utils/config (torch_dtype: weights
are loaded in bfloat16 under bf16), loaders/model.py (4-bit weights are quantised twice), integrations/{liger,
cut_cross_entropy}/args.py.
"""

from collections.abc import Mapping

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.from_config.formats.deepspeed import read_deepspeed
from gpu_plan.planner.from_config.formats.fsdp import read_fsdp, version_of
from gpu_plan.planner.from_config.formats.shared import (
    REENTRANT,
    clipping,
    compiled,
    read_attention,
    read_lora,
    read_optimizer,
    read_weights_dtype,
    say_adapters,
    say_mixed,
    say_otherwise,
    say_reentrant,
    say_stack,
    use_reentrant,
)
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.signs import several
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.strategy.known import strategy_by
from gpu_plan.planner.strategy.traits import Engine
from gpu_plan.planner.workload.adapters import ADAPTERS, adapters_on
from gpu_plan.planner.workload.precisions import mixed_in, pure_in
from gpu_plan.planner.workload.stacks.registry import Stack

SIGNS = several("sequence_len", "micro_batch_size", "adapter", "sample_packing", "val_set_size", alone=("base_model",))

_FLAGS = {
    "flash_attention": "flash",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
    "xformers_attention": None,
    "flex_attention": None,
    "s2_attention": None,
    "sage_attention": None,
}
_DEGREES = {
    "tensor_parallel_size": "tp",
    "context_parallel_size": "cp",
    "sequence_parallel_degree": "cp",
    "expert_parallel_size": "ep",
}
_OTHERWISE = {
    "unfrozen_parameters": "planned with all parameters trained",
    "gptq": "planned on a base as its own config says",
    "qat": "planned without the fake quantisation of weights and activations",
    "tiled_mlp": "planned with whole sequences in every layer",
    "lisa_n_layers": "planned with all layers trained",
    "relora": "planned as plain LoRA",
    "relora_steps": "planned as plain LoRA",
    "kd_trainer": "planned without a teacher's logits",
    "processor_type": "the model's images or sounds are beside its text: planned is the text",
    "freeze_mm_modules": "planned with all parameters trained",
    "lora_mlp_kernel": "planned with peft's own adapters",
    "lora_qkv_kernel": "planned with peft's own adapters",
    "lora_o_kernel": "planned with peft's own adapters",
    "lora_embedding_kernel": "planned with peft's own adapters",
    "use_kernels": "planned with transformers' own experts",
    "use_sonicmoe": "planned with transformers' own experts",
    "use_scattermoe": "planned with transformers' own experts",
    "liger_rms_norm_gated": "planned with transformers' own norm",
}
_GEMMA_4 = "gemma-4"
_CUT = "CutCrossEntropyPlugin"
_LIGER = ("liger_rope", "liger_rms_norm", "liger_glu_activation", "liger_layer_norm", "liger_swiglu")


def read(reading: Reading) -> None:
    """Notes what `axolotl train` would do."""
    table = reading.table
    say_stack(reading, Stack.AXOLOTL, "axolotl runs transformers' Trainer")
    reading.model = table.word("base_model")
    length = table.count("sequence_len")
    reading.say("seq-len", length or 512, f"sequence_len: {length}" if length else "axolotl's default")
    _batch(reading, table)
    _precision(reading, table)
    read_optimizer(reading, table, "optimizer", "adamw_torch_fused", "axolotl")
    _checkpointing(reading, table)
    _attention(reading, table)
    _parallel(reading, table)
    if reading.value("checkpointing") is None:  # neither the model's own nor FSDP's
        reading.say("checkpointing", "none", "axolotl's default")
    _adapters(reading, table)
    dtype = "bfloat16"
    if reading.value("precision") == mixed_in(dtype):
        read_weights_dtype(reading, dtype, "bf16 in axolotl loads the weights in bfloat16")
    _kernels(reading, table)
    _evaluation(reading, table)
    say_otherwise(reading, table, _OTHERWISE)


def _evaluation(reading: Reading, table: Table) -> None:
    """Where a set for it and a time for it are said: axolotl core/builders/base.py (_configure_save_and_eval_strategy;
    before 0.10 each epoch was the time where none was said), utils/config/__init__.py (normalize_config: the batch is
    the micro batch unless written, and evals_per_epoch of a single evaluation sets no time)."""
    size, share = table.count("eval_batch_size"), table.raw("val_set_size")
    some = isinstance(share, int | float) and share > 0
    if not some and not table.peek("test_datasets"):
        return
    which = f"val_set_size: {share}" if some else "test_datasets"
    when = _time_of_evaluation(table)
    if when is None:
        reading.notes.append(
            f"{which}: a set is held back, and none of eval_steps, eval_strategy and evals_per_epoch (of more than one"
            " evaluation) says when it is evaluated: axolotl then never does (0.18)"
        )
        return
    micro = int(reading.value("micro-batch") or 1)
    source = f"eval_batch_size: {size}" if size else "axolotl's default, the micro batch"
    reading.set("eval.batch", size or micro, f"{which}, {when}, {source}")


def _time_of_evaluation(table: Table) -> str | None:
    """The key that says when to evaluate; None for never."""
    strategy, steps, each = (table.peek(key) for key in ("eval_strategy", "eval_steps", "evals_per_epoch"))
    word = "no" if strategy is False else str(strategy or "").lower()
    if word in ("no", "none"):
        return None
    epochs = table.peek("num_epochs")
    whole = epochs if isinstance(epochs, int | float) and epochs > 0 else 1
    if isinstance(each, int | float) and each * whole > 1:
        return f"evals_per_epoch: {each}"
    if isinstance(steps, int | float) and steps > 0:
        return f"eval_steps: {steps}"
    return f"eval_strategy: {word}" if word else None


def _batch(reading: Reading, table: Table) -> None:
    micro, steps, whole = (
        table.count(key) for key in ("micro_batch_size", "gradient_accumulation_steps", "batch_size")
    )
    if steps and whole:
        raise reading.contradiction("gradient_accumulation_steps and batch_size are both given: axolotl takes one")
    micro_source = f"micro_batch_size: {micro}" if micro else "axolotl's default"
    reading.say("micro-batch", micro or 1, micro_source)
    if whole:
        if whole % (micro or 1):
            raise reading.contradiction(f"batch_size {whole} is not a multiple of micro_batch_size {micro or 1}")
        reading.say("grad-accum", whole // (micro or 1), f"batch_size: {whole} over {micro_source}")
    else:
        source = f"gradient_accumulation_steps: {steps}" if steps else "axolotl's default"
        reading.say("grad-accum", steps or 1, source)


def _precision(reading: Reading, table: Table) -> None:
    """bf16: true, auto or full; fp16; bfloat16 and float16 are types without autocast."""
    bf16 = str(table.raw("bf16") if table.stands("bf16") else "auto").lower()
    on = {name: bool(table.flag(name)) for name in ("fp16", "bfloat16", "float16", "fp8")}
    if bf16 == "auto" and not table.stands("bf16") and any(on.values()):
        bf16 = "none"  # what is written overrules the default
    mixed = bf16 in ("true", "auto", "yes", "on")
    source = f"bf16: {bf16}" if table.stands("bf16") else "axolotl's default, bf16: auto"
    if bf16 == "true" and on["fp16"]:
        raise reading.contradiction("bf16 and fp16 are both true: keep one")
    if on["fp8"]:
        say_mixed(reading, "fp8", "fp8: true")
    elif bf16 == "full" or (on["bfloat16"] and not mixed):
        reading.say("precision", pure_in("bfloat16"), "bf16: full" if bf16 == "full" else "bfloat16: true")
    elif mixed:
        say_mixed(reading, "bf16", source)
        if bf16 == "auto":
            reading.notes.append("bf16: auto is bf16 where the GPU has it, and fp16 elsewhere")
    elif on["fp16"] or on["float16"]:
        say_mixed(reading, "fp16", "fp16: true" if on["fp16"] else "float16: true")
        if on["float16"]:
            reading.approximate("float16: true: planned under autocast")
    else:
        say_mixed(reading, "no", "neither bf16 nor fp16 is set")


def _checkpointing(reading: Reading, table: Table) -> None:
    value = table.raw("gradient_checkpointing")
    word = str(value).lower()
    arguments = table.raw("gradient_checkpointing_kwargs")
    on = word in ("true", "offload", "unsloth", "offload_disk")
    source = f"gradient_checkpointing: {word}" if value is not None else "axolotl's default"
    if on:
        reading.say("checkpointing", "full", source)
    if word == "true":
        # utils/config/__init__.py: normalize_config; Gemma 4 is set to false there whatever is written.
        own = not any(table.peek(key) for key in ("unfrozen_parameters", "rl")) and arguments is None
        fixed = _GEMMA_4 in (reading.model or "").lower()
        say_reentrant(reading, False if fixed else use_reentrant(arguments), REENTRANT, default=own, whose="axolotl")
    offloads = table.word("activation_offloading") if not isinstance(table.raw("activation_offloading"), bool) else None
    if table.peek("activation_offloading") is True or (offloads or "false").lower() not in ("false", "none"):
        source = f"activation_offloading: {str(table.peek('activation_offloading')).lower()}"
    elif not on or word == "true":
        return
    reading.approximate(f"{source}: what is kept is offloaded there, planned is that it stays on the GPU")


def _attention(reading: Reading, table: Table) -> None:
    chosen = [key for key in _FLAGS if table.flag(key)]
    if len(chosen) > 1:
        raise reading.contradiction(f"{' and '.join(chosen)} are all true: keep one")
    if chosen:
        kind = _FLAGS[chosen[0]]
        if kind is None:
            reading.approximate(f"{chosen[0]} is an attention that is not planned for: planned as sdpa")
        reading.say("attention", kind or "sdpa", f"{chosen[0]}: true")
    else:
        read_attention(reading, table)


def _parallel(reading: Reading, table: Table) -> None:
    for key, option in _DEGREES.items():
        if (table.count(key) or 1) > 1:
            how = "by ring-flash-attn" if option == "cp" else "as axolotl does it"
            raise UsageError(
                f"{table.where}: {key} above 1 is not planned {how}: say the job with the options of `plan MODEL`, of"
                f" which --{option} is the nearest"
            )
    deepspeed, config = table.raw("deepspeed"), table.table("fsdp_config")
    words = tuple(str(word).lower() for word in table.names("fsdp"))
    sharded = bool(words) or config is not None
    if deepspeed is not None and sharded:
        raise reading.contradiction("deepspeed and fsdp are both given: axolotl takes one")
    replicas, shards = table.count("dp_replicate_size") or 1, table.count("dp_shard_size") or 1
    if isinstance(deepspeed, Mapping):
        read_deepspeed(reading, reading.inner(deepspeed, "deepspeed"))
    elif deepspeed is not None:
        read_deepspeed(reading, reading.other(str(deepspeed), "deepspeed"))
    elif sharded:
        inner = config if config is not None else reading.inner({}, "fsdp_config")
        if "offload" in words:
            reading.say("offload", "all", "fsdp: offload")
        sharding = next((word for word in words if word not in ("offload", "auto_wrap")), None)
        # The version stands beside the table, in it, or is that of its time.
        read_fsdp(reading, inner, version_of(inner, table.count("fsdp_version") or (1 if words else 2)), sharding)
        if replicas > 1:
            reading.said.pop("strategy", None)
            reading.say("strategy", strategy_by(Engine.FSDP2, replicates=True).name, f"dp_replicate_size: {replicas}")
            reading.say("dp-replicate", replicas, f"dp_replicate_size: {replicas}")
            reading.processes = replicas * shards if shards > 1 else None
    else:
        reading.plain = True
    table.raw("fsdp_version")


def _adapters(reading: Reading, table: Table) -> None:
    kind = table.word("adapter")
    four, eight = table.flag("load_in_4bit"), table.flag("load_in_8bit")
    if kind is None:
        if four or eight:
            raise reading.contradiction("load_in_4bit and load_in_8bit need an adapter: axolotl trains no such weights")
        return
    known = ADAPTERS.get(kind)
    if known is not None and known.quantises and not four:
        raise reading.contradiction(f"adapter: {kind} needs load_in_4bit: true")
    if known is None or not known.adapts:
        reading.approximate(f"adapter: {kind}: planned as {adapters_on(quantised=False)}")
    bits = "load_in_4bit: true" if four else "load_in_8bit: true"
    say_adapters(reading, f"adapter: {kind}", quantised=bool(four or eight), because=bits)
    if eight and not four:
        reading.set("quant.base", "int8", bits)
    if four:
        nested = table.raw("bnb_config_kwargs")
        twice = nested.get("bnb_4bit_use_double_quant", True) if isinstance(nested, Mapping) else True
        reading.set("quant.double", bool(twice), "axolotl quantises the scales as well")
    read_lora(reading, table, rank="lora_r", dropout="lora_dropout", default_rank=8, whose="peft")
    targets = table.names("lora_target_modules")
    if table.flag("lora_target_linear"):
        reading.say("lora-targets", "all-linear", "lora_target_linear: true")
    elif targets:
        reading.say("lora-targets", ",".join(targets), "lora_target_modules")
    if table.flag("quantize_moe_experts") and four:
        reading.set("quant.experts", True, "quantize_moe_experts: true")
    for key in ("lora_modules_to_save", "lora_target_parameters", "peft_layers_to_transform"):
        if table.has(key):
            table.raw(key)
            reading.approximate(f"{key}: planned without")
    if table.flag("peft_use_dora"):
        reading.approximate("peft_use_dora: true: planned as plain LoRA")


def _cuts(table: Table) -> bool:
    """Whether the loss is apple's cut cross entropy: on wherever its plugin is, unless told off."""
    plugins = table.raw("plugins")
    named = [plugins] if isinstance(plugins, str) else plugins if isinstance(plugins, list) else []
    there = any(str(name).rpartition(".")[2] == _CUT for name in named)
    return table.flag("cut_cross_entropy") is not False and there


def _kernels(reading: Reading, table: Table) -> None:
    layers = [key for key in _LIGER if table.flag(key)]
    fused, cut = table.flag("liger_fused_linear_cross_entropy"), _cuts(table)
    if layers:
        reading.set("kernels.liger", True, f"{', '.join(layers)}: true")
    if fused or cut:
        source = "liger_fused_linear_cross_entropy: true" if fused else f"plugins: {_CUT}"
        reading.say("fused-loss", True, source)
        if not fused:
            reading.approximate(f"{source}: planned with Liger's fused loss, which keeps no logits either")
    elif layers:
        reading.say("fused-loss", False, f"liger_fused_linear_cross_entropy: {str(bool(fused)).lower()}")
    if table.flag("torch_compile"):
        compiled(reading, "torch_compile: true")
    for key in (
        "flash_attn_cross_entropy",
        "unsloth_cross_entropy_loss",
        "chunked_cross_entropy",
        "liger_cross_entropy",
    ):
        if table.flag(key):
            reading.approximate(f"{key}: true: planned with transformers' own loss")
    clipping(reading, table.rate("max_grad_norm"), "max_grad_norm")
