"""The shipped generations of one model in one weight type, where they stand for what is installed (I/O)."""

import re
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

from gpu_plan.planner.model.quantization import Scheme
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.generation.variant import GenerationVariant
from gpu_plan.planner.trace.shipped.book import DamagedBookError
from gpu_plan.planner.trace.shipped.lookup import GENERATED, ShippedTraces, damaged, find_shipped
from gpu_plan.planner.trace.sizes.planes import Plane
from gpu_plan.planner.trace.storage import CorruptTraceError

_SIZES = re.compile(r"prompt=\d+|batch=\d+")
_ANY = {"prompt": "prompt=*", "batch": "batch=*"}


def generation_key(device: DeviceKind, attention: str, variant: GenerationVariant, *, alike: bool) -> str | None:
    """Name of generations of all sizes in a book, `alike` for every device whose attention kernels are chosen alike or
    of this one alone; None on a CPU, and for a cache or a prefill that no book has."""
    if device.kernels is None or variant.chunks or variant.prefix or variant.cache_length is not None:
        return None
    text = _SIZES.sub(lambda found: _ANY[found[0].partition("=")[0]], variant.key())
    return f"{device.kernels if alike else device.key} {attention} {text}"


def part_word(dtype: str, scheme: Scheme | None) -> str:
    """What tells a model's books of generations apart: type of the weights, and how they are quantised."""
    return f"infer {dtype} {'' if scheme is None else scheme.key()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedGenerations:
    """One model's book of generations, opened."""

    traces: ShippedTraces
    device: DeviceKind
    attention: str
    _planes: dict[str, Plane | None] = field(default_factory=dict)
    """Those that were read, by their keys."""

    def spec(self, model: str) -> ModelSpec:
        """Parameters and identity, under the name that was asked for."""
        return self.traces.spec(model)

    def fact(self, name: str) -> Any:
        """What the book says of the built model under a name; None where it does not say."""
        return self.traces.book.facts.get(name)

    def trace(self, variant: GenerationVariant) -> StepTrace | None:
        """A generation; None where none is shipped that tells it."""
        size = (variant.prompt, variant.batch)
        for key in self._keys(variant):
            number = 0
            while (numbered := f"{key} {number}") in self.traces.book.places:
                plane, number = self._plane(numbered), number + 1
                if plane is not None and plane.holds(size):
                    return plane.at(size, self.device.sm_count)
        return None

    def refusal(self, variant: GenerationVariant) -> str | None:
        """Why the model cannot be parted so; None where that is not known."""
        return next((why for key in self._keys(variant) if (why := self.traces.book.refusals.get(key))), None)

    def _keys(self, variant: GenerationVariant) -> Iterator[str]:
        keys = (generation_key(self.device, self.attention, variant, alike=alike) for alike in (True, False))
        return (key for key in keys if key is not None)

    def _plane(self, key: str) -> Plane | None:
        if key not in self._planes:
            from gpu_plan.planner.trace.storage.over_sizes import read_plane

            try:
                self._planes[key] = read_plane(self.traces.book.stored(key))
            except (CorruptTraceError, DamagedBookError) as problem:
                self.traces.note(damaged(self.traces.path, problem))
                self._planes[key] = None
        return self._planes[key]


def find_generations(
    digest: str, device: DeviceKind, attention: str, dtype: str, scheme: Scheme | None, note: Callable[[str], None]
) -> ShippedGenerations | None:
    """The book of a config's digest; None where there is none, or it stands for another device, which what is quantised
    asks for, or for other code, which is told."""
    found = find_shipped(digest, note, GENERATED, part_word(dtype, scheme))
    if found is None or found.book.facts.get("device", device.key) != device.key:
        return None
    return ShippedGenerations(traces=found, device=device, attention=attention)


__all__ = ["ShippedGenerations", "find_generations", "generation_key", "part_word"]
