"""How a row's step was computed: checkpoints, compiler, precision, adapters; set aside what no option says."""

import re
from dataclasses import dataclass

from benchmarks.accuracy.row import Row, SetAside, field, is_true, software_group, text, whole
from gpu_plan.planner.workload.training import Checkpointing, Peft, Precision, Stack

_EVERY = re.compile(r"every (?P<distance>[0-9]{1,3})(st|nd|rd|th) layer")
_SHARDED = ("llm-foundry", "torchtitan", "torchao", "internevo", "fms-fsdp")
"""Projects that compute in bf16 on fp32 weights whatever their rows say of the weights."""
_STACKS = {"torchtitan": Stack.TORCHTITAN, "torchao": Stack.TORCHTITAN, "torchtune": Stack.TORCHTUNE}
"""Rows of torchao are runs of torchtitan with its layers."""
_FOUR_BITS = ("nf4", "bnb-nf4")
_FLOAT8 = "float8"
_UNLIKE = {"rowwise": "float8 with a scale for each row", "mx": "MXFP8", "nocompile": "float8 kernels of a prototype"}
"""Words of `quantization`, and what of it the planner does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """In this program's words."""

    stack: Stack
    precision: Precision
    peft: Peft
    checkpointing: Checkpointing
    settings: tuple[tuple[str, str], ...]
    """`--set` pairs."""


def way_of(row: Row, strategy: str) -> Way:
    """`strategy` as the registry has it."""
    float8, four_bits = _quantised(row)
    checkpointing, every = _checkpointing(row)
    settings = {}
    if is_true(row, "compile"):
        settings["compile.backend"] = "inductor"
        if strategy == "single":
            settings["compile.regional"] = "true"
    if every > 1:
        settings["checkpoint.every"] = str(every)
    if float8:
        settings["fp8.all_gather"] = str("all-gather" in text(row, "quantization")).lower()
    adapters = Peft("lora") if field(row, "lora") else Peft("none")
    if four_bits and str(adapters) == "none":
        raise SetAside("a quantised base without adapters")
    return Way(
        stack=_stack(row),
        precision=Precision("fp8-mixed") if float8 else _precision(row),
        peft=Peft("qlora") if four_bits else adapters,
        checkpointing=checkpointing,
        settings=tuple(settings.items()),
    )


def _stack(row: Row) -> Stack:
    group = software_group(row)
    if text(row, "quantization") and (group == "fsdp_qlora" or _prepares_nothing(row, group)):
        return Stack.TRL  # as there, what is not packed and the adapters are in bf16
    if group == "fsdp_qlora":
        return Stack.LITGPT  # as there, adapters of a bf16 base are in bf16 (train.py: setup_lora)
    if group == "kempnerforge" and (whole(row, "parallel.tp") or 1) > 1:
        return Stack.TORCHTITAN  # the same styles (kempnerforge/distributed/tensor_parallel.py: _build_block_tp_plan)
    if group in _STACKS:
        return _STACKS[group]
    return Stack.TRAINER if "transformers" in text(row, "software") or group == "qwen-readme" else Stack.PLAIN


def _prepares_nothing(row: Row, group: str) -> bool:
    """fms-acceleration's own plugin makes nothing fp32, where its baseline calls prepare_model_for_kbit_training
    (plugins/accelerated-peft/src/fms_acceleration_peft/framework_plugin_bnb.py)."""
    return group == "fms-acceleration" and "prepare_model_for_kbit_training" not in text(row, "notes")


def _quantised(row: Row) -> tuple[bool, bool]:
    """Whether products are in float8, and whether a frozen base is in NF4."""
    told = text(row, "quantization").lower()
    if not told:
        return False, False
    unlike = next((reason for word, reason in _UNLIKE.items() if word in told), None)
    if unlike is not None:
        raise SetAside(f"{unlike} is not modelled")
    if told.startswith(_FLOAT8):
        return True, False
    if told in _FOUR_BITS:
        return False, True
    raise SetAside(f"quantised: {told.split(' ')[0]} is not compared")


def _checkpointing(row: Row) -> tuple[Checkpointing, int]:
    """What is computed again, and in which of the layers."""
    told = text(row, "activation_checkpointing")
    if "offload" in told:
        raise SetAside("activations that go to the host are not modelled")
    if told.startswith("full"):
        return Checkpointing.FULL, 1
    if "selective" not in told:
        return Checkpointing.NONE, 1
    every = _EVERY.search(told)
    if every is not None:
        return Checkpointing.FULL, max(1, int(every["distance"]))
    if "per-op" in told:
        return Checkpointing.SELECTIVE, 1
    raise SetAside("selective checkpointing of what is not stated")


def _precision(row: Row) -> Precision:
    wide = text(row, "dtype.params") in ("fp32", "float32")
    if wide and text(row, "dtype.compute") in ("fp32", "float32"):
        return Precision("fp32")
    return Precision("bf16-mixed") if software_group(row) in _SHARDED or wide else Precision("bf16")
