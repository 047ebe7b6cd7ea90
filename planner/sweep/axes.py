"""`--sweep OPTION=A,B,C`: which options vary, over which values, and the points that they span. Pure."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_plan.planner.errors import UsageError

MAX_AXES = 3
MAX_POINTS = 200
_FLAGS = ("fused-loss", "compile")
"""Options without a value: swept as `true,false`."""
_FIXED = ("set", "trust-remote-code", "revision", "pin", "hosts", "max-restarts", "no-cache")
"""Options of a job that do not vary."""
_COMMAS = ("lora-targets",)
"""Options whose values hold commas: theirs are separated by semicolons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One option that varies."""

    name: str
    """An option's name without dashes, `gpus`, `model`, or a key of `--set`."""
    values: tuple[str, ...]
    """As they were written, in that order."""

    @property
    def is_setting(self) -> bool:
        """Whether it is a key of `--set`."""
        return "." in self.name

    def given(self, value: str) -> str | bool:
        """`value` as `options.given.named` takes it: a flag is true or false."""
        return value == "true" if self.name in _FLAGS else value


def parse_axes(words: Sequence[str]) -> tuple[Axis, ...]:
    """The axes of `--sweep` options; UsageError in one line for names, values and numbers that make no sense."""
    axes = tuple(_axis(word) for word in words)
    names = [axis.name for axis in axes]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--sweep {name} is given twice: write its values in one, {name}=A,B,C")
    if len(axes) > MAX_AXES:
        raise UsageError(f"--sweep is given {len(axes)} times: at most {MAX_AXES} options vary at once")
    count = num_points(axes)
    if count > MAX_POINTS:
        product = " × ".join(str(len(axis.values)) for axis in axes)
        raise UsageError(f"--sweep spans {product} = {count} points, more than {MAX_POINTS}: leave out some values")
    return axes


def num_points(axes: Sequence[Axis]) -> int:
    """How many points the axes span."""
    count = 1
    for axis in axes:
        count *= len(axis.values)
    return count


def points(axes: Sequence[Axis]) -> list[tuple[str, ...]]:
    """Values of every point, in the order of the axes; the last axis varies fastest."""
    return list(itertools.product(*(axis.values for axis in axes)))


def known_names() -> tuple[str, ...]:
    """Every option that can vary, keys of `--set` behind the others."""
    from gpu_plan.planner.options.parser import job_option_names
    from gpu_plan.planner.options.settings import SETTINGS

    return ("model", "gpus", *(name for name in job_option_names() if name not in _FIXED), *SETTINGS)


def _axis(word: str) -> Axis:
    name, equals, rest = word.partition("=")
    name = name.strip().removeprefix("--")
    if not equals or not name:
        raise UsageError(f"--sweep {word[:60]!r}: write OPTION=A,B,C, such as seq-len=2k,8k,32k")
    known = known_names()
    if name not in known:
        from gpu_plan.planner.nearest import did_you_mean
        from gpu_plan.planner.options.settings import LATER

        if name in LATER:
            from gpu_plan.planner.errors import NotBuiltError

            raise NotBuiltError(f"--sweep {name}")
        hint = did_you_mean(name[:60], known, limit=1)
        raise UsageError(
            f"--sweep {name[:60]}: no option of a job that can vary; such are seq-len, gpus, strategy.{hint}"
        )
    separator = ";" if name in _COMMAS else ","
    values = tuple(value.strip() for value in rest.split(separator))
    if not all(values):
        raise UsageError(f"--sweep {word[:60]!r}: a value is missing")
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise UsageError(f"--sweep {name}: {twice[:40]} is given twice")
    if name in _FLAGS and not set(values) <= {"true", "false"}:
        raise UsageError(f"--sweep {name}: a flag is swept as {name}=true,false")
    return Axis(name=name, values=values)
