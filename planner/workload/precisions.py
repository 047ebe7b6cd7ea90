"""Precisions: one entry for each, with all that the planner and everything around it has to know of it.

Named tuples, because `plan --help` reads the names and must start at once.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpu_plan.planner.workload.named import Named, stored, with_words

DEFAULT_NAME = "bf16-mixed"
"""Of a training on a device that has bfloat16."""
PLAIN_NAME = "fp32"
"""What holds where nothing else is asked for: accelerate's, DeepSpeed's and a script's own default."""


class PrecisionTraits(NamedTuple):
    """One precision."""

    name: str
    """Value of `--precision`."""
    dtype: str
    """torch dtype in which matrix products run, but for those in float8."""
    explored: int
    """Where the explorer's key stops at it: ascending."""
    help: str = ""
    """A few words that `--help` puts behind the name."""
    trains: bool = True
    generates: bool = False
    """Whether inference loads weights so."""
    mixed: bool = False
    """Whether fp32 weights stand behind 16-bit computation, under autocast."""
    scales_loss: bool = False
    """Whether a GradScaler keeps small gradients above zero: they are unscaled before anything looks at them."""
    float8: bool = False
    """Whether linear layers multiply in float8, inside autocast."""
    launcher: str = "no"
    """accelerate's `mixed_precision`, and the Trainer's flag where there is one."""
    deepspeed: str = ""
    """The section of DeepSpeed's configuration that it switches on; empty for none (fp32)."""
    half: str = ""
    """The precision that takes half the memory for activations and is proposed in its place; empty: none."""
    with_masters: str = ""
    """The precision that computes alike with fp32 weights behind it; empty where that means nothing."""
    without_bf16: str = ""
    """What suits a GPU without bfloat16 units in training; empty where they are not missed."""
    weights_without_bf16: str = ""
    """The same in inference."""

    @property
    def is_pure(self) -> bool:
        """Whether weights, gradients and the optimizer's state are 16-bit, like the computation."""
        return not self.mixed and self.dtype != "float32"

    @property
    def weights(self) -> str:
        """torch dtype of the weights that the optimizer steps."""
        return self.dtype if self.is_pure else "float32"


PRECISIONS: Mapping[str, PrecisionTraits] = {
    traits.name: traits
    for traits in (
        PrecisionTraits(name="fp32", dtype="float32", explored=50, generates=True, half="bf16-mixed"),
        PrecisionTraits(
            name="bf16-mixed",
            dtype="bfloat16",
            explored=10,
            mixed=True,
            launcher="bf16",
            deepspeed="bf16",
            without_bf16="fp16-mixed",
        ),
        PrecisionTraits(
            name="fp16-mixed",
            dtype="float16",
            explored=20,
            mixed=True,
            scales_loss=True,
            launcher="fp16",
            deepspeed="fp16",
        ),
        PrecisionTraits(
            name="bf16",
            dtype="bfloat16",
            explored=30,
            help="pure",
            generates=True,
            deepspeed="bf16",
            with_masters="bf16-mixed",
            without_bf16="fp16-mixed",
            weights_without_bf16="fp16",
        ),
        # float8 products inside bf16-mixed. DeepSpeed: accelerate utils/dataclasses.py:
        # DeepSpeedPlugin.set_mixed_precision.
        PrecisionTraits(
            name="fp8-mixed",
            dtype="bfloat16",
            explored=60,
            help="torchao",
            mixed=True,
            float8=True,
            launcher="fp8",
            deepspeed="bf16",
        ),
        PrecisionTraits(name="fp16", dtype="float16", explored=40, trains=False, generates=True, deepspeed="fp16"),
    )
}
"""By name, in the order in which lists show them."""


class Precision(Named):
    """A value of `--precision` in training."""

    __slots__ = ()

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(traits.name for traits in PRECISIONS.values() if traits.trains)

    @property
    def traits(self) -> PrecisionTraits:
        return PRECISIONS[self]

    @property
    def compute_dtype(self) -> str:
        """torch dtype in which matrix products run, but for those in float8."""
        return PRECISIONS[self].dtype

    @property
    def is_mixed(self) -> bool:
        """Whether fp32 weights stand behind 16-bit computation."""
        return PRECISIONS[self].mixed

    @property
    def is_float8(self) -> bool:
        """Whether linear layers multiply in float8."""
        return PRECISIONS[self].float8


class WeightType(Named):
    """Types in which weights can be loaded and computed; inference knows no mixed precision."""

    __slots__ = ()

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(traits.name for traits in PRECISIONS.values() if traits.generates)

    @property
    def traits(self) -> PrecisionTraits:
        return PRECISIONS[self]

    @property
    def dtype(self) -> str:
        """torch dtype."""
        return PRECISIONS[self].dtype


def mixed_in(dtype: str) -> Precision:
    """Autocast to this torch dtype; KeyError for one that no precision has."""
    return _first((traits for traits in PRECISIONS.values() if traits.mixed and not traits.float8), dtype)


def pure_in(dtype: str) -> Precision:
    """Weights and computation in this 16-bit torch dtype; KeyError for one that no precision has."""
    return _first((traits for traits in PRECISIONS.values() if traits.is_pure), dtype)


def weights_in(dtype: str) -> WeightType:
    """Weights of a generation in this torch dtype; KeyError for one that none is loaded in."""
    name = next((traits.name for traits in PRECISIONS.values() if traits.generates and traits.dtype == dtype), None)
    if name is None:
        raise KeyError(dtype)
    return WeightType(name)


def _first(known: Iterable[PrecisionTraits], dtype: str) -> Precision:
    name = next((traits.name for traits in known if traits.trains and traits.dtype == dtype), None)
    if name is None:
        raise KeyError(dtype)
    return Precision(name)


DEFAULT_PRECISION = Precision(DEFAULT_NAME)
PLAIN_PRECISION = Precision(PLAIN_NAME)
DEFAULT_WEIGHTS = WeightType(pure_in(DEFAULT_PRECISION.compute_dtype))
PLAIN_WEIGHTS = WeightType(PLAIN_NAME)
"""What transformers loads where neither config nor checkpoint names a type."""


def default_precision(supports_bf16: bool) -> Precision:
    """Mixed in bfloat16, or what stands in for it on a device that has none."""
    return DEFAULT_PRECISION if supports_bf16 else Precision(DEFAULT_PRECISION.traits.without_bf16)


def in_float8() -> Precision:
    """The precision of float8 products."""
    return Precision(next(traits.name for traits in PRECISIONS.values() if traits.float8))


def by_launcher(word: str) -> Precision | None:
    """What accelerate's `mixed_precision` means, `no` as the plain one; None for another word."""
    found = (traits.name for traits in PRECISIONS.values() if traits.launcher == word and traits.trains)
    return next(map(Precision, found), None)


def launcher_words() -> tuple[str, ...]:
    """Everything that accelerate's `mixed_precision` can say, but for what no plan knows."""
    return tuple(dict.fromkeys(traits.launcher for traits in PRECISIONS.values() if traits.trains))


def stored_precision(name: object) -> PrecisionTraits:
    """Of the precision that a document names, the default's where it names none; InputError for one unknown here."""
    return stored(PRECISIONS, name, "precision", DEFAULT_NAME)


def precision_help() -> str:
    """Every precision of training with its few words, for `--help`."""
    return with_words((traits.name, traits.help) for traits in PRECISIONS.values() if traits.trains)


def explored_precisions(*, inference: bool = False, float8: bool = True) -> tuple[str, ...]:
    """Names that the explorer's key goes through, in its order."""
    offered = [t for t in PRECISIONS.values() if (t.generates if inference else t.trains) and (float8 or not t.float8)]
    return tuple(traits.name for traits in sorted(offered, key=lambda traits: traits.explored))
