"""What several formats have in common: optimizers' names, precision flags, adapters, attention."""

from collections.abc import Mapping

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.strategy.known import traits_of
from gpu_plan.planner.workload.adapters import adapters_on
from gpu_plan.planner.workload.optimizers.registry import by_word
from gpu_plan.planner.workload.precisions import PLAIN_PRECISION, by_launcher, mixed_in, pure_in
from gpu_plan.planner.workload.stacks.registry import Stack

ATTENTION: Mapping[str, str] = {
    "eager": "eager",
    "sdpa": "sdpa",
}
"""`--attention` by transformers' `attn_implementation`."""

REENTRANT = "gradient_checkpointing_kwargs.use_reentrant"

DTYPES: Mapping[str, str] = {"bfloat16": "bfloat16", "bf16": "bfloat16", "float32": "float32", "fp32": "float32"}
"""torch's name by what files write for a model's type."""


def read_optimizer(reading: Reading, table: Table, key: str, default: str, whose: str) -> None:
    """`optim` or `optimizer` with `optim_args`."""
    name = table.word(key)
    source = f"{table.name(key)}: {name}" if name else f"{whose}'s default {default}"
    arguments = table.raw("optim_args")
    chosen = by_word(name or default)
    if chosen is None:
        raise other_optimizer(reading, source)
    momentum = arguments.get("momentum") if isinstance(arguments, Mapping) else _argument(str(arguments), "momentum")
    if chosen.with_momentum and momentum not in (None, "", "0", "0.0", 0):
        reading.say("optimizer", chosen.with_momentum, f"{source}, optim_args: momentum={momentum}")
    else:
        reading.say("optimizer", chosen.name, source)


COMPONENTS: Mapping[str, str] = {
    "torch.optim.AdamW": "adamw_torch",
    "torch.optim.Adam": "adamw_torch",
    "torch.optim.SGD": "sgd",
    "AdamW": "adamw_torch",
    "SGD": "sgd",
    "bitsandbytes.optim.AdamW8bit": "adamw_bnb_8bit",
    "bitsandbytes.optim.PagedAdamW": "paged_adamw_32bit",
    "bitsandbytes.optim.PagedAdamW8bit": "paged_adamw_8bit",
}
"""transformers' word by the Python path of an optimizer's class."""


def say_component_optimizer(reading: Reading, path: str, source: str, *, fused: bool) -> None:
    """Of an optimizer that a file names by its class."""
    word = COMPONENTS.get(path)
    chosen = None if word is None else by_word(f"{word}_fused" if fused else word) or by_word(word)
    if chosen is None:
        raise other_optimizer(reading, source)
    reading.say("optimizer", chosen.name, source + (", fused" if fused else ""))


def say_stack(reading: Reading, stack: Stack, source: str) -> None:
    """Who runs the loop."""
    reading.say("stack", stack, source)


def other_optimizer(reading: Reading, source: str) -> InputError:
    """What to raise for an optimizer that nothing here knows: its states and its step are not guessed."""
    return reading.contradiction(
        f"{source} is an optimizer that is not planned for: write one that is (plan MODEL --help lists them under"
        " --optimizer), or say the job with the options of plan MODEL"
    )


def _argument(text: str, name: str) -> str | None:
    """The value of `name` in `a=1,b=2`."""
    pairs = (item.partition("=") for item in text.split(","))
    return next((value.strip() for key, _, value in pairs if key.strip() == name), None)


def read_mixed(reading: Reading, table: Table, default: str, whose: str) -> None:
    """`bf16` and `fp16` as precision; `default`, a word of accelerate's, where neither is there."""
    bf16, fp16 = table.flag("bf16"), table.flag("fp16")
    if bf16 and fp16:
        raise reading.contradiction("bf16 and fp16 are both true: keep one")
    if bf16:
        say_mixed(reading, "bf16", "bf16: true")
    elif fp16:
        say_mixed(reading, "fp16", "fp16: true")
    elif bf16 is False or fp16 is False:
        say_mixed(reading, "no" if bf16 is False else default, "bf16 and fp16: false")
    else:
        say_mixed(reading, default, f"{whose}'s default")


def say_mixed(reading: Reading, word: str, source: str) -> None:
    """The precision that accelerate calls `word`: no, bf16, fp16 or fp8."""
    chosen = by_launcher(word)
    assert chosen is not None, word
    reading.say("precision", chosen, source)


def say_adapters(reading: Reading, source: str, *, quantised: bool, because: str) -> None:
    """LoRA, on a base of 4 bits where `because` says so."""
    reading.say("peft", adapters_on(quantised=quantised), source + (f", {because}" if quantised else ""))


def read_attention(reading: Reading, table: Table, key: str = "attn_implementation") -> None:
    """transformers' `attn_implementation`."""
    name = table.word(key)
    if name is None:
        return
    # Flash attention has many names: its versions, and kernels of the hub such as kernels-community/vllm-flash-attn3.
    chosen = "flash" if "flash" in name else ATTENTION.get(name)
    if chosen is None:
        reading.approximate(f"{table.name(key)}: {name} is an attention that is not planned for: planned as sdpa")
        chosen = "sdpa"
    reading.say("attention", chosen, f"{table.name(key)}: {name}")


def read_weights_dtype(reading: Reading, name: str | None, source: str) -> None:
    """The type in which the model is loaded, once precision, strategy and adapters are known."""
    dtype = DTYPES.get((name or "").removeprefix("torch."))
    if dtype != "bfloat16":
        return
    if reading.value("precision") == PLAIN_PRECISION:
        reading.said.pop("precision")
        reading.say("precision", pure_in(dtype), f"{source}, neither bf16 nor fp16")
        return
    # FSDP2 and DeepSpeed keep weights to update in fp32 anyway.
    kept = reading.value("strategy") is None or "dtype.params" in settings_of(reading)
    whole = kept and reading.value("peft") is None
    if whole and reading.value("precision") == mixed_in(dtype):
        reading.set("dtype.params", dtype, source)


def settings_of(reading: Reading) -> frozenset[str]:
    """Keys of `--set` that are about the strategy that has been noted, and not about all; none where none has been."""
    name = reading.value("strategy")
    return frozenset() if name is None else traits_of(name).settings


def read_lora(
    reading: Reading,
    table: Table,
    *,
    rank: str,
    dropout: str,
    default_rank: int,
    whose: str,
    default_dropout: float = 0.0,
) -> None:
    """Rank and dropout of adapters, whose kind has been said."""
    given = table.count(rank)
    source = f"{rank}: {given}" if given else f"{whose}'s default"
    reading.say("lora-rank", given or default_rank, source)
    share = table.rate(dropout)
    source = f"{whose}'s default" if share is None else f"{dropout}: {share}"
    share = default_dropout if share is None else share
    if share:
        reading.set("lora.dropout", share, source)


def compiled(reading: Reading, source: str) -> None:
    """Notes that what is compiled is planned as if it were not."""
    reading.approximate(f"{source}: planned without compilation; --compile plans it compiled as a whole")


def say_otherwise(reading: Reading, table: Table, keys: Mapping[str, str]) -> None:
    """Of keys that change the job in a way no plan of this version follows: what is planned instead, by the key."""
    for key, instead in keys.items():
        value = table.raw(key)
        if value in (None, "", False, [], {}) or str(value).lower() == "false":
            continue
        shown = f": {value}" if isinstance(value, str | int | float) else ""
        reading.approximate(f"{table.name(key)}{shown}: {instead}")


def use_reentrant(arguments: object) -> bool | None:
    """What gradient_checkpointing_kwargs say; None for nothing."""
    given = arguments.get("use_reentrant") if isinstance(arguments, Mapping) else None
    return given if isinstance(given, bool) else None


def say_reentrant(reading: Reading, given: bool | None, key: str, *, default: bool, whose: str) -> None:
    """Whether layers that are checkpointed in full are so by reentrant checkpoints; `default` where `key` is not."""
    if reading.value("checkpointing") != "full":
        return
    if default if given is None else given:
        reading.set("checkpoint.reentrant", True, f"{whose}'s default" if given is None else f"{key}: true")


def clipping(reading: Reading, value: float | None, source: str) -> None:
    """What another tool clips gradients to, 0 for not at all; `source` is the key."""
    if value is not None:
        reading.set("clip.max_norm", float(value), f"{source}: {value:g}")
