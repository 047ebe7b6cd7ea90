"""From a call's keyword arguments to named values, as `planner.options.given` takes them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from gpu_plan.planner.errors import UsageError


class JobOptions(TypedDict, total=False):
    """Options of a job by their command line names, `-` as `_`; what is not given is searched or a default.

    Numbers may be given as such or as `"8k"`; several modules of `lora_targets` as a list.
    """

    task: str
    strategy: str
    offload: str
    dp_replicate: int | str
    tp: int | str
    ep: int | str
    cp: int | str
    pp: int | str
    schedule: str
    vpp: int | str
    precision: str
    optimizer: str
    checkpointing: str
    attention: str
    stack: str
    seq_len: int | str
    micro_batch: int | str
    global_batch: int | str
    grad_accum: int | str
    peft: str
    lora_rank: int | str
    lora_targets: str | Sequence[str]
    fused_loss: bool
    context: int | str
    batch: int | str
    new_tokens: int | str
    kv_dtype: str
    quantize: str
    recipe: str
    prompt_len: int | str
    completion_len: int | str
    reference: str
    teacher: str
    server: str
    concurrency: int | str
    gpu_memory_utilization: float | str
    vllm_tp: int | str
    max_num_seqs: int | str
    max_num_batched_tokens: int | str
    enforce_eager: bool
    settings: Mapping[str, object]
    """What `--set` takes, such as `{"fsdp.reshard_after_forward": False}`."""
    pin: bool
    explain: bool
    trust_remote_code: bool
    revision: str
    use_cache: bool
    script_seconds: float
    data: str
    """`standin`: what `--data` takes."""
    unwalled: bool


def values_of(options: Mapping[str, Any]) -> dict[str, object]:
    """Named values of the job. UsageError in one line for an option that there is not."""
    values: dict[str, object] = {}
    for name, value in options.items():
        _check_name(name)
        if name == "settings":
            values["set"] = None if value is None else _mapping(value)
        elif name not in ("use_cache", "explain", "unwalled"):
            values[name.replace("_", "-")] = value
    return values


def sweep_values(axes: Mapping[str, Iterable[object]]) -> list[str]:
    """What `--sweep` takes, one an axis, of `{"seq_len": [2048, "8k"]}`; keys of `--set` keep their dots.

    UsageError for an axis without values.
    """
    taken: list[str] = []
    for name, values in axes.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise UsageError(f"sweep {name}: give a list of values")
        separator = ";" if name == "lora_targets" else ","
        listed = [text_of(value) for value in values]
        if not listed:
            raise UsageError(f"sweep {name}: the list of values is empty")
        option = name if "." in name else name.replace("_", "-")
        taken.append(f"{option}={separator.join(listed)}")
    return taken


def text_of(value: object) -> str:
    """A value as the command line reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


def _check_name(name: str) -> None:
    known = tuple(JobOptions.__annotations__)
    if name not in known:
        from gpu_plan.planner.nearest import did_you_mean

        hint = did_you_mean(name, known, limit=1)
        raise UsageError(f"plan() takes no option {name!r}.{hint}" if hint else f"plan() takes no option {name!r}")


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise UsageError("settings: give a mapping, such as {'fsdp.reshard_after_forward': False}")
    return value
