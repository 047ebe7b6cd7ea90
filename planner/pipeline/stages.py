"""Layers over the stages of a pipeline, and stages over its ranks."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

_LAYER = re.compile(r"^((?:[A-Za-z_]\w*\.)*?[A-Za-z_]\w*)\.(\d+)\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCut:
    """The layers `first` to `end`, the latter left out, of a model with `layers` of them: one stage of a pipeline."""

    first: int
    end: int
    layers: int

    @property
    def is_first(self) -> bool:
        """Whether it holds the embedding."""
        return self.first == 0

    @property
    def is_last(self) -> bool:
        """Whether it holds the final norm and the head."""
        return self.end == self.layers

    def key(self) -> str:
        return f"{self.first}:{self.end}/{self.layers}"


def count_layers(names: Iterable[str]) -> int:
    """Layers of a model by the names of its parameters: of the longest list of modules; 0 where there is none."""
    lists: dict[str, set[int]] = {}
    for name in names:
        found = _LAYER.match(name)
        if found:
            lists.setdefault(found[1], set()).add(int(found[2]))
    return max((len(indices) for indices in lists.values()), default=0)


class Named(Protocol):
    """What has a name."""

    @property
    def name(self) -> str: ...


_counted: list[tuple[Sequence[Named], int]] = []
"""The parameters that were counted last, and their layers: every family of a search asks for those of one model."""


def layers_of(parameters: Sequence[Named]) -> int:
    """`count_layers` of a model's parameters, which nobody changes."""
    if not _counted or _counted[0][0] is not parameters:
        _counted[:] = [(parameters, count_layers(parameter.name for parameter in parameters))]
    return _counted[0][1]


def even_cuts(layers: int, stages: int) -> tuple[StageCut, ...]:
    """Stages of as many layers each; what does not divide goes to those in the middle, one each.

    The first stage embeds and the last has norm, head and loss: neither gets a layer more than another while a stage
    between them could take it.
    """
    each, more = divmod(layers, stages)
    between = list(range(1, stages - 1)) or list(range(stages))
    order = [*between, *(index for index in range(stages) if index not in between)]
    larger = set(order[:more])
    cuts, first = [], 0
    for index in range(stages):
        end = first + each + (index in larger)
        cuts.append(StageCut(first=first, end=end, layers=layers))
        first = end
    return tuple(cuts)


def balanced_cuts(layers: int, stages: int, layer: float, first: float, last: float) -> tuple[StageCut, ...]:
    """Stages of which the slowest is as fast as can be: `layer` seconds each, `first` and `last` more at the ends.

    Every stage has a layer at least; of equally fast ways the later ones get more: fewer micro batches stand there.
    """
    counts = [1] * stages
    extra = [first, *[0.0] * (stages - 2), last] if stages > 1 else [first + last]
    for _ in range(layers - stages):
        place = min(range(stages), key=lambda index: ((counts[index] + 1) * layer + extra[index], -index))
        counts[place] += 1
    cuts, start = [], 0
    for count in counts:
        cuts.append(StageCut(first=start, end=start + count, layers=layers))
        start += count
    return tuple(cuts)


def of_rank(rank: int, ranks: int, local: int) -> tuple[int, ...]:
    """Stages of one rank: every `ranks`-th (torch/distributed/pipelining/_utils.py: generate_stage_to_rank_mapping)."""
    return tuple(place * ranks + rank for place in range(local))
