"""Formats by name: an explicit registry. A new one is a module with `SIGNS` and `read`, and one line here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.from_config.formats import accelerate, axolotl, deepspeed, llamafactory, trainer
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.unread import TOOLS, first_of
from gpu_plan.planner.nearest import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One format."""

    name: str
    title: str
    signs: tuple[str, ...]
    """Top-level keys by which it is known."""
    read: Callable[[Reading], None]


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(name="accelerate", title="Accelerate configuration", signs=accelerate.SIGNS, read=accelerate.read),
        Kind(name="deepspeed", title="DeepSpeed configuration", signs=deepspeed.SIGNS, read=deepspeed.read),
        Kind(name="axolotl", title="axolotl configuration", signs=axolotl.SIGNS, read=axolotl.read),
        Kind(
            name="llamafactory", title="LLaMA-Factory configuration", signs=llamafactory.SIGNS, read=llamafactory.read
        ),
        Kind(name="trainer", title="TrainingArguments", signs=trainer.SIGNS, read=trainer.read),
    )
}


def find_kind(name: str) -> Kind:
    """The format called `name`; UsageError for none."""
    if name in KINDS:
        return KINDS[name]
    raise UsageError(f"--kind {name!r} is unknown: use {', '.join(KINDS)}.{did_you_mean(name, KINDS, limit=1)}")


def recognise(content: Mapping[str, object], where: str) -> tuple[Kind, tuple[str, ...]]:
    """The format of a file and the keys that say so; InputError where none, or more than one, explains it.

    LLaMA-Factory's files are TrainingArguments with more beside them: its own keys count first.
    """
    other = first_of(TOOLS, content)
    if other is not None:
        kind, signs = other
        raise InputError(
            f"{where} is {kind.title} (by {', '.join(signs[:3])}), which is not read yet: say the job with the options"
            " of `plan MODEL`, or read it as another kind with --kind"
        )
    found = {name: tuple(key for key in kind.signs if key in content) for name, kind in KINDS.items()}
    own = {name: keys for name, keys in found.items() if keys and name != "trainer"}
    names = tuple(KINDS)
    if len(own) > 1:
        ordered = sorted(own, key=lambda name: (-len(own[name]), names.index(name)))
        first, second = ordered[:2]
        if len(own[first]) == len(own[second]):
            raise InputError(
                f"{where} could be of two kinds: {own[first][0]} is of {KINDS[first].title}, {own[second][0]} of"
                f" {KINDS[second].title}: say which with --kind {first} or --kind {second}"
            )
        return KINDS[first], own[first]
    name = next(iter(own), "trainer")
    if not found[name]:
        keys = ", ".join(str(key)[:30] for key in list(content)[:3])
        raise InputError(
            f"{where} is of no kind that is known ({keys or 'empty'}): it must be a configuration of Accelerate,"
            " DeepSpeed, the Trainer, axolotl or LLaMA-Factory; --kind says which"
        )
    return KINDS[name], found[name]
