"""TrainingArguments as JSON or YAML, alone or beside the model's arguments (HfArgumentParser, TRL's ModelConfig).

Meanings and defaults: transformers training_args.py (5.x), trl trainer/base_config.py, sft_config.py, model_config.py.
"""

from collections.abc import Mapping

from gpu_plan.planner.from_config.formats.deepspeed import read_deepspeed
from gpu_plan.planner.from_config.formats.fsdp import read_fsdp, version_of
from gpu_plan.planner.from_config.formats.shared import (
    DTYPES,
    clipping,
    compiled,
    read_attention,
    read_lora,
    read_mixed,
    read_optimizer,
    read_weights_dtype,
    say_adapters,
    say_otherwise,
    say_stack,
    use_reentrant,
)
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.signs import Content
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.strategy.known import traits_of
from gpu_plan.planner.workload.adapters import ADAPTERS
from gpu_plan.planner.workload.losses import SMOOTHED
from gpu_plan.planner.workload.stacks.registry import Stack

_SURE = ("per_device_train_batch_size", "per_gpu_train_batch_size", "per_device_eval_batch_size")
"""Names that others' files have only where they stand for the Trainer's."""
_SHARED = ("output_dir", "num_train_epochs", "optim", "gradient_checkpointing")
_BESIDE = (
    "gradient_accumulation_steps", "logging_steps", "save_strategy", "save_steps", "report_to", "bf16", "fp16",
    "model_name_or_path", "load_in_8bit", "load_in_4bit",
)  # fmt: skip
"""Names that other tools took over one by one: one of the first that has another beside it says something."""
_SECTIONS = frozenset((
    "model", "data", "dataset", "train", "training", "trainer", "optimizer", "scheduler", "loss", "task", "engine",
))  # fmt: skip
"""Tables of tools that have one for each part; TrainingArguments are flat."""

_FOREIGN = frozenset(("lr", "batch_size", "micro_batch_size", "num_epochs", "epochs", "n_epochs", "max_epochs"))
"""What others call the Trainer's rate, batch and passes: a file that has one of them is no TrainingArguments."""


def signs(content: Content) -> tuple[str, ...]:
    """The keys that say a file is of TrainingArguments."""
    if _of_a_script(content):
        return ()
    sure = tuple(name for name in _SURE if name in content)
    if sure:
        return sure
    if all(name in content for name in ("model_name_or_path", "dataset_name")):
        # TRL's command line (`trl sft --config`) needs no more than these and what differs from its defaults.
        told = tuple(name for name in _TRL if name in content)
        if len(told) > 1 and any(name in _TRL_ALONE for name in told) and not _FOREIGN & content.keys():
            return told
    if _FOREIGN & content.keys() or any(isinstance(content.get(name), Mapping) for name in _SECTIONS):
        return ()
    if isinstance(content.get("fsdp"), str | list | bool):
        return ("fsdp",)
    shared = tuple(name for name in _SHARED if name in content)
    beside = tuple(name for name in _BESIDE if name in content)
    named = ("deepspeed",) if isinstance(content.get("deepspeed"), str) else ()
    return shared if len(shared + beside + named) > 1 else ()


def _of_a_script(content: Content) -> bool:
    """Whether TRL's keys stand beside a model under a name that TRL's ModelConfig has not: a script's own settings,
    of whose defaults its file says nothing."""
    own = any(name in content for name in _OWN_MODEL) and "model_name_or_path" not in content
    return own and any(name in content for name in _TRL) and not any(name in content for name in _TRL_ALONE)


_OWN_MODEL = ("model_name", "model_id", "base_model_name")
_SPREAD = frozenset(("fsdp", "fsdp_config"))

_TRL = (
    "max_length", "packing", "dataset_text_field", "use_peft", "assistant_only_loss", "completion_only_loss",
    "dataset_mixture", "dataset_mixer", "dataset_train_split", "dataset_kwargs", "dataset_num_proc", "padding_free",
    "chat_template", "chat_template_path", "eos_token", "eval_packing", "pad_to_multiple_of",
)  # fmt: skip
"""Keys of SFTConfig, ScriptArguments and ModelConfig (trl 1.x), and alignment-handbook's beside them: checkpointing and
bf16 are then on by default."""
_TRL_ALONE = ("dataset_text_field", "use_peft", "assistant_only_loss", "completion_only_loss", "dataset_mixer")
"""Those of them that scripts of their own do not have by chance."""
_LENGTHS = ("max_length", "max_seq_length", "max_seq_len", "model_max_length", "block_size")
_OTHERWISE = {
    "lora_modules_to_save": "planned without",
    "spectrum_config_path": "planned with all parameters trained",
    "activation_offloading": "what is kept is offloaded there, planned is that it stays on the GPU",
    "padding_free": "planned with rows of the whole length",
}
_WHOSE = "TrainingArguments"


def read(reading: Reading) -> None:
    """Notes what the Trainer would do."""
    table = reading.table
    if all(key in _SPREAD or key.startswith("_") for key in table.listed()):
        read_parallel(reading, table)  # a file of presets, such as ms-swift's fsdp2.json: the rest stands elsewhere
        return
    sft = reading.several or any(table.has(key) for key in _TRL)  # trl trainer/base_config.py is behind them all
    say_stack(reading, Stack.TRL if sft else Stack.TRAINER, "SFTConfig" if sft else _WHOSE)
    reading.model = table.word("model_name_or_path") or _named(table)
    read_batch(reading, table)
    read_mixed(reading, table, "bf16" if sft else "no", "SFTConfig" if sft else _WHOSE)
    read_optimizer(reading, table, "optim", "adamw_torch_fused", _WHOSE)
    read_checkpointing(reading, table, default="full" if sft else "none", whose="SFTConfig" if sft else _WHOSE)
    read_parallel(reading, table)
    read_rest(reading, table)
    if not sft:
        read_smoothing(reading, table)
    _length(reading, table, sft)
    _adapters(reading, table)
    _storage(reading, table)
    say_otherwise(reading, table, _OTHERWISE)
    _template(reading, table)
    read_attention(reading, table)
    for key in ("dtype", "torch_dtype"):
        if table.has(key):
            name = table.word(key)
            read_weights_dtype(reading, name, f"{key}: {name}")


def _template(reading: Reading, table: Table) -> None:
    """A tokenizer whose template is taken brings its tokens along: trl trainer/sft_trainer.py, chat_template_utils.py
    (clone_chat_template resizes the embeddings; with adapters the rows of new tokens are trained)."""
    path = table.word("chat_template_path")
    if path and not path.endswith((".jinja", ".j2")):
        reading.approximate(f"chat_template_path: {path}: planned without the tokens that its tokenizer adds")


def _named(table: Table) -> str | None:
    """A model under what scripts of their own call it, where that is an id or a folder and no run's name."""
    words = (table.word(name) for name in _OWN_MODEL if table.has(name))
    return next((word for word in words if word is not None and "/" in word), None)


def _storage(reading: Reading, table: Table) -> None:
    """BitsAndBytesConfig stores packed weights as uint8 unless told otherwise, which FSDP2 leaves whole."""
    strategy, kind = reading.value("strategy"), ADAPTERS.get(reading.value("peft") or "")
    if kind is None or not kind.quantises or strategy is None or "quant.storage" not in traits_of(strategy).settings:
        return
    word = table.word("bnb_4bit_quant_storage")
    known = DTYPES.get(word or "", word)
    source = f"bnb_4bit_quant_storage: {word}" if word else "BitsAndBytesConfig's default"
    reading.set("quant.storage", known if known in ("bfloat16", "float16") else "uint8", source)


def read_batch(reading: Reading, table: Table) -> None:
    """Samples per device, and accumulation; also under its name before 4.0."""
    if table.flag("auto_find_batch_size"):
        reading.notes.append("auto_find_batch_size is true: the micro batch that is written is only where it begins")
    key = "per_gpu_train_batch_size" if table.has("per_gpu_train_batch_size") else "per_device_train_batch_size"
    micro, steps = table.count(key), table.count("gradient_accumulation_steps")
    reading.say("micro-batch", micro or 8, f"{key}: {micro}" if micro else f"{_WHOSE}' default")
    reading.say("grad-accum", steps or 1, f"gradient_accumulation_steps: {steps}" if steps else f"{_WHOSE}' default")


def read_checkpointing(reading: Reading, table: Table, *, default: str, whose: str) -> None:
    """`activation_checkpointing`, or `gradient_checkpointing`, its name before 5.20."""
    flags = {key: table.flag(key) for key in ("activation_checkpointing", "gradient_checkpointing")}
    given = {key: flag for key, flag in flags.items() if flag is not None}
    chosen, source = default, f"{whose}'s default"
    for key, flag in given.items():
        chosen, source = ("full" if flag else "none"), f"{key}: {str(flag).lower()}"
        if flag:
            break
    for key in ("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"):
        content = table.raw(key)
        every = content.get("every_n_layers") if isinstance(content, Mapping) else None
        if chosen == "full" and isinstance(every, int) and every > 1:
            reading.set("checkpoint.every", every, f"{key}.every_n_layers: {every}")
        if chosen == "full" and use_reentrant(content):
            reading.set("checkpoint.reentrant", "true", f"{key}.use_reentrant: true")
    if chosen == "full" or not _fsdp_checkpoints(table):
        reading.say("checkpointing", chosen, source)


def _fsdp_checkpoints(table: Table) -> bool:
    """Whether FSDP's own wrapper checkpoints: the Trainer's flag is then rightly false."""
    config = table.peek("fsdp_config")
    return isinstance(config, Mapping) and str(config.get("activation_checkpointing")).lower() == "true"


def read_parallel(reading: Reading, table: Table) -> None:
    """`deepspeed`, `fsdp` with `fsdp_config`, or neither."""
    fsdp, deepspeed = _fsdp_words(table), table.raw("deepspeed")
    if fsdp is not None and deepspeed is not None:
        raise reading.contradiction("fsdp and deepspeed are both given: keep one")
    if deepspeed is not None:
        if isinstance(deepspeed, Mapping):
            zero = reading.inner(deepspeed, "deepspeed")
        elif isinstance(deepspeed, str):
            zero = reading.other(deepspeed, "deepspeed")
        else:
            raise table.wrong("deepspeed", "a table or a file's name")
        _give_way(reading, zero)
        read_deepspeed(reading, zero)
    elif fsdp is not None:
        config = table.raw("fsdp_config")
        inner = reading.other(config, "fsdp_config") if isinstance(config, str) else None
        inner = inner or reading.inner(config if isinstance(config, Mapping) else {}, "fsdp_config")
        if "offload" in fsdp:
            reading.say("offload", "all", "fsdp: offload")
        sharding = next((word for word in fsdp if word not in ("offload", "auto_wrap", "true")), None)
        version = version_of(inner, 2)
        if version == 2 and sharding == "shard_grad_op":
            reading.set("fsdp.reshard_after_forward", False, "fsdp: shard_grad_op")
        read_fsdp(reading, inner, version, sharding)
    else:
        reading.plain = True


def _give_way(reading: Reading, deepspeed: Table) -> None:
    """An optimizer of DeepSpeed's own file is made in the place of `optim` (transformers integrations/deepspeed.py:
    deepspeed_optim_sched, which refuses adafactor alone)."""
    before = reading.said.get("optimizer")
    if deepspeed.has("optimizer") and before is not None and before.value != "adafactor":
        del reading.said["optimizer"]
        reading.notes.append(f"{before.source}: the optimizer of DeepSpeed's own file takes its place")


def _fsdp_words(table: Table) -> tuple[str, ...] | None:
    """Words of `fsdp`; None where FSDP is off."""
    value = table.raw("fsdp")
    if isinstance(value, list):
        words = tuple(str(item).lower() for item in value)
    else:
        words = tuple(str(value).lower().split()) if value not in (None, False) else ()
    return words if words and words != ("false",) else None


def read_smoothing(reading: Reading, table: Table) -> None:
    """`label_smoothing_factor`, where the Trainer's own compute_loss runs."""
    factor = table.rate("label_smoothing_factor")
    if factor:
        reading.set("loss.variant", SMOOTHED, f"label_smoothing_factor: {factor}")


def read_rest(reading: Reading, table: Table, *, evaluates: bool = True) -> None:
    """Liger, compilation, clipping, data loading, where it runs, and evaluation unless its rule is another's."""
    for key in ("use_liger_kernel", "use_liger"):  # trl's name before 0.16
        if table.flag(key):
            reading.set("kernels.liger", True, f"{key}: true")
    if table.has("liger_kernel_config"):
        config = table.raw("liger_kernel_config")
        if isinstance(config, Mapping) and config.get("fused_linear_cross_entropy") is False:
            reading.say("fused-loss", False, "liger_kernel_config.fused_linear_cross_entropy: false")
    if table.flag("torch_compile"):
        compiled(reading, "torch_compile: true")
    clipping(reading, table.rate("max_grad_norm"), "max_grad_norm")
    reading.cpu = bool(table.flag("use_cpu") or table.flag("no_cuda"))
    if evaluates:
        _evaluation(reading, table)
    loader = table.raw("accelerator_config")
    if isinstance(loader, Mapping):
        for key, default in (("split_batches", False), ("dispatch_batches", False), ("even_batches", True)):
            value = loader.get(key)
            if isinstance(value, bool) and value is not default:
                reading.set(f"data.{key}", value, f"accelerator_config.{key}: {str(value).lower()}")


def _evaluation(reading: Reading, table: Table) -> None:
    """Forward passes between steps, of a batch of their own; also under the strategy's name before 4.41."""
    key = next((key for key in ("eval_strategy", "evaluation_strategy") if table.has(key)), "eval_strategy")
    word = "no" if table.peek(key) is False else str(table.peek(key) or "no").lower()
    table.raw(key)
    size = table.count("per_device_eval_batch_size")
    if word not in ("no", "none"):
        source = f"per_device_eval_batch_size: {size}" if size else f"{_WHOSE}' default"
        reading.set("eval.batch", size or 8, f"{key}: {word}, {source}")


def _length(reading: Reading, table: Table, sft: bool) -> None:
    for key in _LENGTHS:
        length = table.count(key)
        if length is not None:
            reading.say("seq-len", length, f"{key}: {length}")
    if reading.value("seq-len") is None and sft:
        reading.say("seq-len", 1024, "SFTConfig's default")


def _of_firefly(reading: Reading, table: Table) -> bool:
    """Whether it is a file of Firefly's scripts, which train adapters on a 4-bit base unless told otherwise
    (yangjianxin1/Firefly component/argument.py: train_mode; train.py: load_model)."""
    if not (table.has("train_mode") or (table.has("train_file") and table.has("template_name"))):
        return False
    table.raw("template_name")
    mode = table.word("train_mode") or "qlora"
    source = f"train_mode: {mode}" if table.has("train_mode") else "Firefly's default"
    if mode not in ("full", "lora", "qlora"):
        raise table.wrong("train_mode", "full, lora or qlora")
    if mode != "full":
        say_adapters(reading, source, quantised=mode == "qlora", because=source)
        read_lora(
            reading, table, rank="lora_rank", dropout="lora_dropout", default_rank=64, whose="Firefly",
            default_dropout=0.05,
        )  # fmt: skip
        reading.say("lora-targets", "all-linear", "Firefly's find_all_linear_names")
        if mode == "qlora":
            reading.set("quant.double", True, "Firefly's BitsAndBytesConfig")
    return True


def _adapters(reading: Reading, table: Table) -> None:
    """TRL's ModelConfig, and the same keys in scripts of one's own."""
    if _of_firefly(reading, table):
        return
    quantised, use = table.flag("load_in_4bit"), table.flag("use_peft")
    eight = table.flag("load_in_8bit")
    bits = 4 if quantised else 8
    lora = use or (use is None and any(table.has(key) for key in ("lora_r", "lora_rank")))
    if not lora:
        if quantised or eight:
            raise reading.contradiction(
                f"load_in_{bits}bit is true without adapters: {bits}-bit weights cannot be trained"
            )
        return
    source = "use_peft: true" if use else "lora_r"
    because = f"load_in_{bits}bit: true"
    say_adapters(reading, source, quantised=bool(quantised or eight), because=because)
    if eight and not quantised:
        reading.set("quant.base", "int8", because)
    rank = "lora_rank" if table.has("lora_rank") else "lora_r"
    share = 0.05 if use else 0.0  # without use_peft the keys are a script's own
    read_lora(
        reading,
        table,
        rank=rank,
        dropout="lora_dropout",
        default_rank=16,
        whose="ModelConfig",
        default_dropout=share,
    )
    targets = table.names("lora_target_modules")
    if targets:
        reading.say("lora-targets", ",".join(targets), "lora_target_modules")
    if quantised and table.flag("use_bnb_nested_quant"):
        reading.set("quant.double", True, "use_bnb_nested_quant: true")
    if table.flag("use_dora"):
        reading.approximate("use_dora: true: planned as plain LoRA")
