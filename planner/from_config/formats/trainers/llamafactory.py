"""LLaMA-Factory's YAML: TrainingArguments and its own.

Meanings and defaults, of 0.9.5: llamafactory hparams/{model,finetuning,data}_args.py,
model/model_utils/checkpointing.py (checkpoints unless told not to), model/adapter.py (trained weights are fp32).
"""

from gpu_plan.planner.from_config.formats.shared import (
    other_optimizer,
    read_lora,
    read_mixed,
    read_optimizer,
    say_adapters,
    say_mixed,
    say_otherwise,
    say_stack,
)
from gpu_plan.planner.from_config.formats.trainers.trainer import read_batch, read_parallel, read_rest
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.signs import several
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.workload.adapters import adapters_on
from gpu_plan.planner.workload.optimizers.registry import optimizers
from gpu_plan.planner.workload.precisions import pure_in
from gpu_plan.planner.workload.stacks.registry import Stack

SIGNS = several(
    "stage", "template", "dataset_dir", alone=("finetuning_type", "cutoff_len", "lora_target", "quantization_bit")
)

_ATTENTION = {"auto": "sdpa", "disabled": "eager", "off": "eager", "sdpa": "sdpa", "fa2": "flash", "fa3": "flash"}
_OTHER_OPTIMIZERS = ("use_galore", "use_apollo", "use_badam", "use_adam_mini")
_OTHERWISE = {
    "use_unsloth": "planned as peft's own",
    "use_ray": "planned as one launch",
    "use_eaft_loss": "planned with the model's own loss",
    "use_dft_loss": "planned with the model's own loss",
    "use_asft_loss": "planned without the reference model's logits",
    "use_llama_pro": "planned with all parameters trained",
    "mixture_of_depths": "planned with whole sequences",
    "use_kt": "planned with all experts on the GPU",
}
_WHOSE = "LLaMA-Factory"


def read(reading: Reading) -> None:
    """Notes what `llamafactory-cli train` would do."""
    table = reading.table
    if not table.flag("do_train") and any(table.flag(key) for key in ("do_predict", "do_eval")):
        raise reading.contradiction("do_predict or do_eval without do_train: nothing is trained")
    if table.has("task") and table.has("n_shot"):  # hparams/evaluation_args.py: llamafactory-cli eval
        raise reading.contradiction("task and n_shot are an evaluation's: nothing is trained")
    say_stack(reading, Stack.LLAMA_FACTORY, "LLaMA-Factory runs transformers' Trainer")
    reading.model = table.word("model_name_or_path")
    length = table.count("cutoff_len")
    reading.say("seq-len", length or 2048, f"cutoff_len: {length}" if length else f"{_WHOSE}'s default")
    stage = table.word("stage") or "sft"
    if stage not in ("pt", "sft", "dpo", "kto", "rm", "ppo"):
        raise table.wrong("stage", "pt, sft, dpo, kto, rm or ppo")
    read_batch(reading, table)
    _precision(reading, table)
    _optimizer(reading, table)
    _checkpointing(reading, table)
    read_parallel(reading, table)
    _adapters(reading, table)
    _attention(reading, table)
    if table.flag("enable_liger_kernel"):
        reading.set("kernels.liger", True, "enable_liger_kernel: true")
    say_otherwise(reading, table, _OTHERWISE)
    read_rest(reading, table)


def _precision(reading: Reading, table: Table) -> None:
    if table.flag("fp8"):
        say_mixed(reading, "fp8", "fp8: true")
        table.flag("bf16"), table.flag("fp16")
    elif table.flag("pure_bf16"):
        reading.say("precision", pure_in("bfloat16"), "pure_bf16: true")
        table.flag("bf16")
    else:
        read_mixed(reading, table, "no", "TrainingArguments")


def _optimizer(reading: Reading, table: Table) -> None:
    for key in _OTHER_OPTIMIZERS:
        if table.flag(key):
            raise other_optimizer(reading, f"{key}: true")
    for traits in optimizers().values():
        if traits.llamafactory_switch and table.flag(traits.llamafactory_switch):
            reading.say("optimizer", traits.name, f"{traits.llamafactory_switch}: true")
            table.word("optim")
            return
    read_optimizer(reading, table, "optim", "adamw_torch_fused", "TrainingArguments")


def _checkpointing(reading: Reading, table: Table) -> None:
    """TrainingArguments' own flag plays no part: the model is prepared before the Trainer sees it."""
    off = table.flag("disable_gradient_checkpointing")
    asked = table.flag("gradient_checkpointing")
    if off and asked:
        raise reading.contradiction("gradient_checkpointing and disable_gradient_checkpointing are both true")
    source = "disable_gradient_checkpointing: true" if off else f"{_WHOSE} checkpoints unless told not to"
    reading.say("checkpointing", "none" if off else "full", source)
    table.raw("gradient_checkpointing_kwargs")  # of the Trainer's own checkpoints, which are not made
    older = table.flag("use_reentrant_gc")
    if not off and (older is False or reading.several):  # of one model the stack says it by itself
        told = f"{_WHOSE}'s default" if older is None else f"use_reentrant_gc: {str(older).lower()}"
        reading.set("checkpoint.reentrant", older is not False, told)
    if table.flag("use_unsloth_gc"):
        reading.approximate("use_unsloth_gc: true: what is kept is offloaded there, planned is that it stays")


_FROZEN = ("freeze_vision_tower", "freeze_multi_modal_projector", "freeze_language_model")
"""Parts of a model of pictures and text (hparams/finetuning_args.py)."""


def _adapters(reading: Reading, table: Table) -> None:
    plain = adapters_on(quantised=False)
    kind = table.word("finetuning_type") or plain
    bits = table.count("quantization_bit")
    if kind == "full":
        if bits:
            raise reading.contradiction(f"finetuning_type: full with quantization_bit: {bits}: only adapters train so")
        for key in _FROZEN:
            if table.flag(key):
                reading.approximate(f"{key}: true: planned with all parameters trained")
        return
    if kind != plain:
        shown = "with all parameters trained" if kind == "freeze" else f"as {plain}"
        reading.approximate(f"finetuning_type: {kind}: planned {shown}")
        if kind == "freeze":
            return
    if bits not in (None, 4, 8):
        reading.approximate(f"quantization_bit: {bits}: planned with a 16-bit base")
    four = bits == 4
    source = f"finetuning_type: {kind}" if table.has("finetuning_type") else f"{_WHOSE}'s default"
    say_adapters(reading, source, quantised=bits in (4, 8), because=f"quantization_bit: {bits}")
    if bits == 8:
        reading.set("quant.base", "int8", "quantization_bit: 8")
    twice = table.flag("double_quantization")
    if table.flag("upcast_layernorm") and bits in (4, 8):
        reading.set("quant.upcast", "norms", "upcast_layernorm: true")
    if four:
        reading.set("quant.double", twice is not False, "double_quantization: true, or its default")
    read_lora(reading, table, rank="lora_rank", dropout="lora_dropout", default_rank=8, whose=_WHOSE)
    targets = table.names("lora_target") or ("all",)
    every = targets == ("all",)
    reading.say("lora-targets", "all-linear" if every else ",".join(targets), f"lora_target: {','.join(targets)}")
    if table.flag("use_dora"):
        reading.approximate("use_dora: true: planned as plain LoRA")
    if table.has("additional_target"):
        table.raw("additional_target")
        reading.approximate("additional_target: planned without")


def _attention(reading: Reading, table: Table) -> None:
    value = table.raw("flash_attn")
    name = {"true": "fa2", "false": "disabled", "none": "auto"}.get(str(value).lower(), str(value).lower())
    if name not in _ATTENTION:
        raise table.wrong("flash_attn", "auto, disabled, sdpa or fa2")
    reading.say("attention", _ATTENTION[name], f"flash_attn: {name}")
    if table.flag("shift_attn"):
        reading.approximate("shift_attn: true: planned with whole sequences")
