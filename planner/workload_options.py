"""From option words to a Workload: values checked, defaults filled, every origin noted."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from planner.errors import NotBuiltError, UsageError
from planner.hardware.cluster import Cluster
from planner.model.spec import ModelSpec
from planner.nearest import did_you_mean
from planner.strategy.base import Offload
from planner.strategy.registry import find_strategy
from planner.workload import Attention, Basis, Checkpointing, Optimizer, Precision, Stack, Workload

DEFAULT_SEQ_LEN = 4096
_LARGEST = 2**31

_LATER: Mapping[str, tuple[str, ...]] = {
    "--precision": ("fp8-mixed",),
    "--optimizer": ("adamw-8bit", "paged-adamw-8bit", "adafactor", "muon", "lion", "lion-8bit"),
    "--checkpointing": ("selective",),
    "--stack": ("torchtitan", "megatron"),
    "--offload": ("all", "nvme"),
}
"""Values of the interface that later versions bring."""

SETTINGS: Mapping[str, tuple[str, ...]] = {"fsdp.reshard_after_forward": ("true", "false")}
"""`--set` keys that this version reads, with their values."""
_LATER_SETTINGS = (
    "dtype.params",
    "dtype.grads",
    "dtype.reduce",
    "dtype.optimizer",
    "ddp.gradient_as_bucket_view",
    "zero.reduce_bucket_size",
    "alloc.expandable_segments",
    "data.padding",
    "memory.reserve",
    "lora.dropout",
    "quant.double",
    "loss.variant",
)

E = TypeVar("E", bound=StrEnum)


class Options(Mapping[str, object]):
    """The words given on the command line, by option name without dashes; None where not given."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def __getitem__(self, key: str) -> object:
        return self._values[key]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def text(self, key: str) -> str | None:
        value = self._values.get(key)
        return None if value is None else str(value)


def make_workload(
    options: Options, settings: Sequence[str], pinned: bool, cluster: Cluster, spec: ModelSpec
) -> Workload:
    """The job that the options describe. UsageError in one line for every value that makes no sense."""
    basis: dict[str, Basis] = {}

    def noted(name: str, given: bool, otherwise: Basis) -> None:
        basis[name] = "given" if given else otherwise

    def number(key: str) -> int | None:
        return positive(options.text(key), f"--{key}")

    precision = choice(Precision, options.text("precision"), "--precision")
    optimizer = choice(Optimizer, options.text("optimizer"), "--optimizer")
    attention = choice(Attention, options.text("attention"), "--attention")
    stack = choice(Stack, options.text("stack"), "--stack")
    checkpointing = choice(Checkpointing, options.text("checkpointing"), "--checkpointing")
    offload = choice(Offload, options.text("offload"), "--offload")
    strategy = options.text("strategy")
    strategy = None if strategy in (None, "auto") else find_strategy(str(strategy)).name
    seq_len, micro_batch = number("seq-len"), number("micro-batch")
    global_batch, grad_accum = number("global-batch"), number("grad-accum")
    for name, value in (("precision", precision), ("optimizer", optimizer), ("attention", attention), ("stack", stack)):
        noted(name, value is not None, "default")
    noted("seq_len", seq_len is not None, "default")
    if pinned:
        checkpointing = checkpointing or Checkpointing.NONE
        offload = offload or Offload.NONE
        strategy = strategy or ("single" if cluster.world_size == 1 else "ddp")
        micro_batch = micro_batch or (None if global_batch else 1)
    otherwise: Basis = "default" if pinned else "searched"
    for name in ("strategy", "offload", "checkpointing", "micro-batch", "grad-accum", "global-batch"):
        noted(name.replace("-", "_"), options.text(name) not in (None, "auto"), otherwise)
    workload = Workload(
        seq_len=seq_len or min(DEFAULT_SEQ_LEN, spec.max_positions or DEFAULT_SEQ_LEN),
        precision=precision or default_precision(cluster),
        optimizer=optimizer or Optimizer.ADAMW,
        attention=attention or Attention.SDPA,
        stack=stack or Stack.ACCELERATE,
        micro_batch=micro_batch,
        global_batch=global_batch,
        grad_accum=grad_accum,
        checkpointing=checkpointing,
        strategy=strategy,
        offload=None if offload is None else str(offload),
        settings=parse_settings(settings),
    )
    return workload.with_basis(**basis)


def default_precision(cluster: Cluster) -> Precision:
    """bf16-mixed, or fp16-mixed where the device has no bf16."""
    return Precision.BF16_MIXED if cluster.gpu.supports_bf16 else Precision.FP16_MIXED


def choice(kind: type[E], value: str | None, option: str) -> E | None:
    """A member of `kind`, or None when nothing was given."""
    if value is None:
        return None
    try:
        return kind(value.lower())
    except ValueError:
        if value.lower() in _LATER.get(option, ()):
            raise NotBuiltError(f"{option} {value.lower()}") from None
        names = [str(member) for member in kind]
        hint = did_you_mean(value, names, limit=1)
        raise UsageError(f"{option} {value!r} is unknown: use {', '.join(names)}.{hint}") from None


def positive(value: str | None, option: str) -> int | None:
    """A positive integer, also written `4k` for 4096."""
    if value is None:
        return None
    text = value.strip().lower().replace("_", "")
    factor = 1024 if text.endswith("k") else 1
    digits = text.removesuffix("k")
    number = int(digits) * factor if digits.isascii() and digits.isdigit() and len(digits) < 12 else 0
    if not 0 < number < _LARGEST:
        raise UsageError(f"{option} {value!r} is not a positive integer")
    return number


def parse_settings(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """`KEY=VALUE` pairs, sorted; UsageError for unknown keys or values, the nearest key offered."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--set {word!r}: write KEY=VALUE, such as fsdp.reshard_after_forward=false")
        if key in _LATER_SETTINGS:
            raise NotBuiltError(f"--set {key}")
        if key not in SETTINGS:
            hint = did_you_mean(key, (*SETTINGS, *_LATER_SETTINGS), limit=1)
            raise UsageError(f"--set {key}: unknown setting; known: {', '.join(SETTINGS)}.{hint}")
        if value.lower() not in SETTINGS[key]:
            raise UsageError(f"--set {key}={value}: use {' or '.join(SETTINGS[key])}")
        found[key] = value.lower()
    return tuple(sorted(found.items()))
