"""Formats by name: an explicit registry. A new one is a module with `SIGNS` and `read`, and one line here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.from_config.formats import accelerate, deepspeed
from gpu_plan.planner.from_config.formats.loops import litgpt, llamafactory_v1, open_instruct, torchtitan, torchtune
from gpu_plan.planner.from_config.formats.trainers import axolotl, llamafactory, ms_swift, oumi, trainer, unsloth
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.signs import Content, Signs, keys
from gpu_plan.planner.from_config.unread import TOOLS, first_of
from gpu_plan.planner.nearest import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One format."""

    name: str
    title: str
    signs: Signs
    """The keys by which it is known."""
    read: Callable[[Reading], None]
    sure: bool = False
    """Whether its signs are of no other format: they then count before all that is shared."""


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(name="accelerate", title="Accelerate configuration", signs=keys(*accelerate.SIGNS), read=accelerate.read),
        Kind(name="deepspeed", title="DeepSpeed configuration", signs=deepspeed.SIGNS, read=deepspeed.read),
        Kind(name="axolotl", title="axolotl configuration", signs=axolotl.SIGNS, read=axolotl.read),
        Kind(
            name="llamafactory",
            title="LLaMA-Factory configuration",
            signs=llamafactory.SIGNS,
            read=llamafactory.read,
        ),
        Kind(
            name="llamafactory-v1",
            title="LLaMA-Factory v1 configuration",
            signs=llamafactory_v1.SIGNS,
            read=llamafactory_v1.read,
            sure=True,
        ),
        Kind(name="ms-swift", title="ms-swift configuration", signs=ms_swift.SIGNS, read=ms_swift.read, sure=True),
        Kind(name="oumi", title="Oumi configuration", signs=oumi.signs, read=oumi.read, sure=True),
        Kind(name="unsloth", title="unsloth configuration", signs=unsloth.SIGNS, read=unsloth.read, sure=True),
        Kind(
            name="open-instruct",
            title="open-instruct configuration",
            signs=open_instruct.SIGNS,
            read=open_instruct.read,
            sure=True,
        ),
        Kind(name="torchtune", title="torchtune recipe", signs=torchtune.SIGNS, read=torchtune.read, sure=True),
        Kind(
            name="torchtitan", title="torchtitan configuration", signs=torchtitan.SIGNS, read=torchtitan.read, sure=True
        ),
        Kind(name="litgpt", title="litgpt configuration", signs=litgpt.SIGNS, read=litgpt.read, sure=True),
        Kind(name="trainer", title="TrainingArguments", signs=trainer.signs, read=trainer.read),
    )
}
_PLAIN = "trainer"
"""What other tools' files hold among their own keys: it counts last."""


def find_kind(name: str) -> Kind:
    """The format called `name`; UsageError for none."""
    if name in KINDS:
        return KINDS[name]
    raise UsageError(f"--kind {name!r} is unknown: use {', '.join(KINDS)}.{did_you_mean(name, KINDS, limit=1)}")


_DOCUMENT = " of `plan MODEL`, or its models and phases as a job document (plan JOB.toml)"


def recognise(content: Content, where: str) -> tuple[Kind, tuple[str, ...]]:
    """The format of a file and the keys that say so; InputError where none, or more than one, explains it.

    LLaMA-Factory's files are TrainingArguments with more beside them: its own keys count first.
    """
    other = first_of(TOOLS, content)
    if other is not None:
        kind, signs = other
        raise InputError(
            f"{where} is {kind.title} (by {', '.join(signs[:3])}), which is not read yet: say the job with the options"
            f"{_DOCUMENT if kind.several else ' of `plan MODEL`'}, or read it as another kind with --kind"
        )
    found = {name: signs for name, kind in KINDS.items() if (signs := kind.signs(content))}
    sure = next((name for name in found if KINDS[name].sure), None)
    if sure is not None:
        return KINDS[sure], found[sure]
    own = {name: signs for name, signs in found.items() if name != _PLAIN}
    if len(own) > 1:
        names = tuple(KINDS)
        ordered = sorted(own, key=lambda name: (-len(own[name]), names.index(name)))
        best, second = ordered[:2]
        if len(own[best]) == len(own[second]):
            raise InputError(
                f"{where} could be of two kinds: {own[best][0]} is of {KINDS[best].title}, {own[second][0]} of"
                f" {KINDS[second].title}: say which with --kind {best} or --kind {second}"
            )
        return KINDS[best], own[best]
    name = next(iter(own), _PLAIN)
    if name not in found:
        shown = ", ".join(str(key)[:30] for key in list(content)[:3])
        raise InputError(
            f"{where} is not a configuration of a known kind ({shown or 'empty'}): if a script of yours reads it, plan"
            f" that script (plan train.py ...); else name its kind with --kind, one of {', '.join(KINDS)}"
        )
    return KINDS[name], found[name]
