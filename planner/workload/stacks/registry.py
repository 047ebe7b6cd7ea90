"""Stacks and their traits, from one TOML file each in `facts`: nothing of a stack is decided anywhere else.

Files are read when a stack is asked for: `plan --help` needs names alone.
"""

import functools
import tomllib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.workload.adapters import Peft
from gpu_plan.planner.workload.precisions import Precision

Loop = Literal["accelerate", "trainer", "own"]
"""Whose loop: accelerate's `backward` and its wrapped forward, transformers' Trainer, or one that wraps nothing."""
Part = Literal["norms", "embeddings", "others"]
"""Kinds of frozen parameters that stacks convert apart; embeddings are those of input and output."""
PARTS: tuple[Part, ...] = ("norms", "embeddings", "others")
ABOUT = (
    "upcast", "adapters", "frozen", "gradients", "clipping", "loss", "checkpointing", "data", "optimizer", "evaluation",
)  # fmt: skip
"""What is told of every stack."""


class Stack(StrEnum):
    """Value of `--stack`."""

    ACCELERATE = "accelerate"
    TRAINER = "trainer"
    TRL = "trl"
    PEFT = "peft"
    AXOLOTL = "axolotl"
    LLAMA_FACTORY = "llama-factory"
    UNSLOTH = "unsloth"
    TORCHTUNE = "torchtune"
    LITGPT = "litgpt"
    TORCHTITAN = "torchtitan"
    PLAIN = "plain"

    @property
    def traits(self) -> "StackTraits":
        """What is known of it."""
        return traits_of(str(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that a stack does, and where that was found."""

    about: str
    """One of `ABOUT`."""
    text: str
    source: str
    """File and function in the project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Types of a frozen base and of what is trained around it."""

    wide: tuple[Part, ...] = ()
    """Kinds of frozen parameters that are kept in fp32; the rest stays in the type of the computation."""
    wide_adapters: bool = True
    """Whether adapters are fp32, whatever the base is; else they are of the type of the computation."""
    only_mixed: bool = False
    """Whether all of that holds under mixed precision alone: else everything is of the type of the computation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackTraits:
    """One stack, as far as anything depends on it."""

    name: str
    title: str
    project: str
    version: str
    commit: str
    """Of the source that was read; empty where an installed release was."""
    checked: Literal["run", "read"]
    """`run`: compared here with the real library, tiny models on a CPU; `read`: in its source only."""
    loop: Loop
    drops_outputs: bool
    """Whether outputs are gone before backward begins."""
    plain_base: Held
    packed_base: Held
    packed_sharded: Held
    """As `packed_base`, where blocks are sharded (FSDP, ZeRO-3)."""
    strategies: tuple[str, ...] = ()
    """Those that it has; empty: any."""
    precisions: tuple[str, ...] = ()
    """Those that it has, its default first; empty: any, and the planner's default."""
    adapters: tuple[str, ...] = ()
    """Values of `--peft` that it has; empty: any."""
    optimizer: str = ""
    """Its default; empty: the script's affair."""
    clip: float | None = None
    """Norm to which it clips unless told otherwise, 0: it does not; None: the script's affair."""
    loss: str = ""
    """Value of `--set loss.variant` for causal language models; empty: the model's own."""
    experts: Literal["kept", "quantised", "on request"] = "kept"
    """What becomes of experts that are one parameter where bitsandbytes packs the linear layers."""
    experts_word: str = ""
    """How it is asked to pack them."""
    shards_packed: bool = True
    """Whether it trains a quantised base on several devices."""
    packs_mixed: bool = True
    """Whether a quantised base is trained under mixed precision."""
    recomputes_every_second_product: bool = False
    """Whether its selective checkpointing computes every second matrix product of a layer again."""
    selective_keeps: tuple[str, ...] = ()
    """Operators that its selective checkpointing keeps beside products and attention, in ATen or among collectives."""
    reentrant: bool = False
    """Whether its checkpoints are torch's reentrant ones, unless told otherwise."""
    leanest: bool = False
    """Whether it is what people change to where a model with adapters does not fit one device."""
    turn: int = 0
    """When it is asked whether adapters fit one device by it, where nobody named a stack and a loop of one's own needs
    the node's RAM: 1 first; 0: never."""
    scales_packed: bool = True
    """Whether gradients of adapters around a quantised base can be scaled, as fp16 asks for."""
    approximate: str = ""
    """What of it the plan does not follow."""
    cuts_sequence: bool = False
    """Whether its tensor parallel cuts the sequence between a layer's products, and the logits by the vocabulary;
    otherwise it follows the class's own plan."""
    trainer: str = ""
    """Words behind `torchrun` that have its own trainer cut the sequence, with what is planned in braces."""
    experts_otherwise: str = ""
    """Why experts over ranks are not planned under it, where it does not spread them as transformers does."""
    facts: tuple[Fact, ...] = ()

    @property
    def is_trainer(self) -> bool:
        """Whether transformers' Trainer runs the loop, of its own or under another name."""
        return self.loop == "trainer"

    @property
    def wraps_forward(self) -> bool:
        """Whether accelerate wraps the model's forward: autocast inside, outputs in fp32."""
        return self.loop != "own"

    @property
    def basis(self) -> str:
        """`trl 1.16.0, run`."""
        told = "compared with the real library" if self.checked == "run" else "read, not run"
        return f"{self.project} {self.version}".strip() + f", {told}"

    def held(self, *, quantised: bool, sharded: bool = False) -> Held:
        """Types of what is frozen and of adapters, where there are any."""
        if not quantised:
            return self.plain_base
        return self.packed_sharded if sharded else self.packed_base

    def fails_scaling(self, precision: Precision, peft: Peft) -> bool:
        """Whether a step ends in an error: torch's GradScaler unscales no gradients in bf16."""
        return not self.scales_packed and peft.quantises and precision.is_mixed and precision.compute_dtype == "float16"

    def fact(self, about: str) -> Fact | None:
        """What is known about one of `ABOUT`."""
        return next((fact for fact in self.facts if fact.about == about), None)


@functools.cache
def traits_of(name: str) -> StackTraits:
    """Traits of a stack; KeyError for one that has no file."""
    file = Path(__file__).parent / "facts" / f"{name}.toml"
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise KeyError(name) from None
    return _traits(name, content)


def _traits(name: str, content: Mapping[str, Any]) -> StackTraits:
    values = dict(content)
    values |= {key: _held(values.get(key, {})) for key in ("plain_base", "packed_base")}
    values["packed_sharded"] = _held(values["packed_sharded"]) if "packed_sharded" in values else values["packed_base"]
    values |= {key: tuple(values.get(key, ())) for key in ("strategies", "precisions", "adapters", "selective_keeps")}
    values["facts"] = tuple(Fact(**fact) for fact in values["facts"])
    return StackTraits(name=name, **values)


def _held(content: Mapping[str, Any]) -> Held:
    return Held(
        wide=PARTS if content.get("wide") == "all" else tuple(content.get("wide", ())),
        wide_adapters=bool(content.get("wide_adapters", True)),
        only_mixed=bool(content.get("only_mixed", False)),
    )


def stack_names() -> tuple[str, ...]:
    """Every value of `--stack`."""
    return tuple(map(str, Stack))


def stack_document(stack: Stack) -> dict[str, object]:
    """What a plan's document says of its stack."""
    traits = stack.traits
    return {
        "name": traits.name,
        "title": traits.title,
        "project": traits.project,
        "version": traits.version,
        "commit": traits.commit or None,
        "checked": traits.checked,
        "facts": [{"about": f.about, "text": f.text, "source": f.source} for f in traits.facts],
    }


def part_of(name: str, dims: int, embeddings: Iterable[str] = ()) -> Part:
    """What stacks take a parameter for, by its name as they do.

    axolotl loaders/model.py: _convert_embedding_modules_dtype goes by `norm` in a module's name and the names of
    embeddings; LLaMA-Factory model/model_utils/checkpointing.py by `norm` or `ln` in that of a vector.
    """
    lowered = name.lower()
    if "norm" in lowered or (dims == 1 and "ln" in lowered.rpartition(".")[0].rpartition(".")[2]):
        return "norms"
    if any(word in lowered for word in (*embeddings, *_EMBEDDINGS)):
        return "embeddings"
    return "others"


_EMBEDDINGS = ("embed_tokens", "lm_head", "embed_in", "embed_out", "word_embeddings", "wte.")
"""axolotl utils/model_shard_quant and loaders/utils.py: get_linear_embedding_layers; `wte` is GPT-2's."""
