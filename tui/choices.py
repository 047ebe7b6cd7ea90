"""The options that the explorer shows, with the keys that move them; values as on the command line.

Three menus: of a model that is trained, of one that generates, and of a training script, which fixes some by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpu_plan.planner.strategy.known import all_traits
from gpu_plan.planner.workload.adapters import NO_ADAPTERS, explored_adapters
from gpu_plan.planner.workload.optimizers.registry import DEFAULT_OPTIMIZER, explored_optimizers
from gpu_plan.planner.workload.precisions import explored_precisions
from gpu_plan.planner.workload.stacks.registry import stack_names

LARGEST = 2**24
FLAGS = ("fused-loss",)
"""Options without a value: `true` is the flag, `false` its `--no-`."""


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
    short: str = ""
    """The label where there is little room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Menu:
    """The options of one kind of job, in the order in which they are shown."""

    choices: Mapping[str, Choice]
    searched: tuple[str, ...]
    """Those that the search tries unless they are given: keys move them in the picture alone."""
    stepped: tuple[str, ...]
    """Those with a key of their own, in the order in which they are shown."""
    fixed: tuple[str, ...] = ()
    """Those that are shown and that nothing here moves: the training script decides them."""

    @property
    def shown(self) -> tuple[str, ...]:
        return (*self.stepped, *self.fixed)

    def by_key(self, key: str) -> str | None:
        """The option that a lower-case key moves; None where it moves none."""
        return next((name for name in self.stepped if self.choices[name].key == key), None)


def _strategies() -> tuple[str, ...]:
    """By how much of the model ranks share out; what runs on one device alone comes last."""
    ordered = sorted(all_traits(), key=lambda traits: (traits.one_device, traits.stage, traits.wraps_blocks))
    return tuple(traits.name for traits in ordered)


CHOICES: Mapping[str, Choice] = {
    "strategy": Choice(
        label="strategy",
        key="s",
        values=_strategies(),
        help="what each GPU holds of the model: everything (ddp), or a share of it",
    ),
    "offload": Choice(
        label="offload",
        key="o",
        values=("none", "optimizer", "all", "nvme"),
        help="what waits in host RAM: ZeRO moves the optimizer, ZeRO-3 and FSDP2 everything; ZeRO-3 also to NVMe",
    ),
    "checkpointing": Choice(
        label="checkpointing",
        short="ckpt",
        key="c",
        values=("none", "selective", "full"),
        help="activations computed again in backward instead of kept",
    ),
    "micro-batch": Choice(
        label="micro batch", short="micro", key="m", default="1", help="samples per forward pass and rank"
    ),
    "grad-accum": Choice(
        label="accumulation", short="accum", key="i", default="1", help="micro steps per optimizer step"
    ),
    "seq-len": Choice(label="sequence", short="seq", key="l", least=16, help="tokens per sample"),
    "precision": Choice(
        label="precision", key="p", values=explored_precisions(), help="of training"
    ),
    "optimizer": Choice(
        label="optimizer",
        key="z",
        values=explored_optimizers(),
        default=DEFAULT_OPTIMIZER,
        help="what it keeps per parameter, and where",
    ),
    "attention": Choice(
        label="attention", key="a", values=("sdpa", "flash", "eager"), default="sdpa", help="which kernel attends"
    ),
    "peft": Choice(
        label="adapters", key="k", values=explored_adapters(), default=NO_ADAPTERS, help="what is trained instead"
    ),
    "lora-rank": Choice(label="LoRA rank", short="rank", key="r", default="16", help="of the adapters; needs --peft"),
    "fused-loss": Choice(
        label="fused loss",
        key="u",
        values=("false", "true"),
        default="false",
        help="Liger's fused linear cross entropy: no logits",
    ),
    "stack": Choice(
        label="stack", key="", values=stack_names(), default="accelerate", help="who runs the loop"
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

TRAINING = Menu(choices=CHOICES, searched=SEARCHED, stepped=STEPPED)

_GENERATION: Mapping[str, Choice] = {
    "strategy": Choice(
        label="strategy",
        key="s",
        values=("single", "replicas", "tp", "pp", "device-map"),
        help="whole models, layers cut over GPUs (tp), stages (pp), or modules over all devices (device-map)",
    ),
    "tp": Choice(label="tensor parallel", short="tp", key="k", default="1", help="GPUs that share every layer"),
    "pp": Choice(label="pipeline stages", short="pp", key="r", default="1", help="runs of layers, one after the other"),
    "offload": Choice(
        label="offload", key="o", values=("none", "all"), help="what does not fit waits in CPU RAM, then on disk"
    ),
    "context": Choice(label="context", key="l", least=16, help="tokens of one sample: prompt and new ones"),
    "batch": Choice(label="batch", key="m", default="1", help="samples that one replica generates together"),
    "new-tokens": Choice(
        label="new tokens", short="new", key="i", default="1", help="of the context, after the prompt"
    ),
    "precision": Choice(
        label="precision",
        key="p",
        values=explored_precisions(inference=True),
        help="of the weights that are not quantised",
    ),
    "quantize": Choice(
        label="weights",
        key="z",
        values=("none", "int8", "nf4", "nf4-dq", "fp8", "torchao-int4", "gptq-4bit-128", "awq-4bit-128", "mxfp4"),
        help="--quantize: in fewer bits; empty: as the checkpoint has them",
    ),
    "kv-dtype": Choice(
        label="KV cache", short="cache", key="c", values=("auto", "fp8"), default="auto", help="keys and values kept as"
    ),
    "attention": CHOICES["attention"],
}
GENERATION = Menu(choices=_GENERATION, searched=("strategy", "tp", "pp", "offload"), stepped=tuple(_GENERATION))

_SCRIPT: Mapping[str, Choice] = {
    # The script's own value holds where nothing is given: none of them has a default.
    **{
        name: replace(CHOICES[name], default="")
        for name in CHOICES
        if name not in ("fused-loss", "lora-rank", "lora-targets")
    },
    "precision": replace(CHOICES["precision"], values=explored_precisions(float8=False), default=""),
}
SCRIPT = Menu(
    choices=_SCRIPT,
    searched=SEARCHED,
    stepped=("strategy", "offload", "checkpointing", "micro-batch", "grad-accum", "precision", "optimizer"),
    fixed=("seq-len", "attention", "peft", "stack"),
)


def menu_of(model: str, task: str | None) -> Menu:
    """The options of a job: of `task`, for a model or a training script."""
    if task == "infer":
        return GENERATION
    return SCRIPT if model.endswith(".py") else TRAINING


GPUS = (
    "T4", "L4", "A10G", "RTX-3090", "RTX-4090", "RTX-5090", "V100-32GB", "A100", "A6000", "L40S", "A100-80GB", "H100",
    "GH200-96GB", "H200", "B200", "MI300X", "B300",
)  # fmt: skip
"""Kinds of GPU that a key goes through, smallest memory first; the form takes every name of `plan gpus`."""
