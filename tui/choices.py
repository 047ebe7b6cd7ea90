"""The options that the explorer shows, with the keys that move them; values as on the command line."""

from collections.abc import Mapping
from dataclasses import dataclass

LARGEST = 2**24


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One job option. Without `values` it is a number, which keys double and halve."""

    label: str
    key: str
    """Moves on; the same letter in upper case moves back."""
    values: tuple[str, ...] = ()
    default: str = ""
    """What holds where nothing is given; empty where that depends."""
    help: str = ""
    least: int = 1


CHOICES: Mapping[str, Choice] = {
    "strategy": Choice(
        label="strategy",
        key="s",
        values=("ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp1", "hsdp", "single"),
        help="what each GPU holds of the model: everything (ddp), or a share of it",
    ),
    "offload": Choice(
        label="offload",
        key="o",
        values=("none", "optimizer", "all"),
        help="what waits in host RAM: ZeRO moves the optimizer, ZeRO-3 and FSDP2 everything",
    ),
    "checkpointing": Choice(
        label="checkpointing",
        key="c",
        values=("none", "selective", "full"),
        help="activations computed again in backward instead of kept",
    ),
    "micro-batch": Choice(label="micro batch", key="m", default="1", help="samples per forward pass and rank"),
    "grad-accum": Choice(label="accumulation", key="i", default="1", help="micro steps per optimizer step"),
    "seq-len": Choice(label="sequence", key="l", least=16, help="tokens per sample"),
    "precision": Choice(
        label="precision", key="p", values=("bf16-mixed", "fp16-mixed", "bf16", "fp32", "fp8-mixed"), help="of training"
    ),
    "optimizer": Choice(
        label="optimizer",
        key="z",
        values=(
            "adamw", "adamw-fused", "adamw-8bit", "paged-adamw-8bit", "adafactor", "muon", "sgd-momentum", "sgd",
        ),
        default="adamw",
        help="what it keeps per parameter, and where",
    ),
    "attention": Choice(
        label="attention", key="a", values=("sdpa", "flash", "eager"), default="sdpa", help="which kernel attends"
    ),
    "peft": Choice(
        label="adapters", key="k", values=("none", "lora", "qlora"), default="none", help="what is trained instead"
    ),
    "lora-rank": Choice(label="LoRA rank", key="r", default="16", help="of the adapters; needs --peft"),
    "fused-loss": Choice(
        label="fused loss",
        key="u",
        values=("false", "true"),
        default="false",
        help="Liger's fused linear cross entropy: no logits",
    ),
    "stack": Choice(
        label="stack", key="", values=("accelerate", "trainer", "plain"), default="accelerate", help="who runs the loop"
    ),
    "global-batch": Choice(label="global batch", key="", help="samples per optimizer step, all ranks together"),
    "dp-replicate": Choice(label="replicas", key="", help="copies of the sharded model under hsdp"),
    "lora-targets": Choice(label="LoRA targets", key="", values=("all-linear",), help="modules to adapt"),
}  # fmt: skip

SEARCHED = ("strategy", "offload", "checkpointing", "micro-batch", "grad-accum", "dp-replicate")
"""Options that the search tries unless they are given: keys move them in the picture alone."""

STEPPED = (
    "strategy", "offload", "checkpointing", "micro-batch", "grad-accum", "seq-len", "precision", "optimizer",
    "attention", "peft", "lora-rank", "fused-loss",
)  # fmt: skip
"""Options with a key of their own, in the order in which they are shown."""

GPUS = (
    "T4", "L4", "A10G", "RTX-3090", "RTX-4090", "RTX-5090", "V100-32GB", "A100", "A6000", "L40S", "A100-80GB", "H100",
    "GH200-96GB", "H200", "B200", "MI300X", "B300",
)  # fmt: skip
"""Kinds of GPU that a key goes through, smallest memory first; the form takes every name of `plan gpus`."""
