"""A run that does something else between its steps: what stands while it does, behind two iterations of training."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from gpu_plan.planner.memory.appended import Appended, joined, next_segment
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One storage of a phase; bytes."""

    nbytes: int
    category: Category
    label: str
    module: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """One phase: what stands at its peak beside what stood before."""

    phase: Phase
    standing: tuple[Standing, ...]


def with_phases(training: RankStream, phases: Iterable[Between]) -> RankStream:
    """`training` followed by the phases, each of which gives back what it took."""
    stream = training
    for one in phases:
        added = Appended(len(stream.fixed))
        made = [
            added.alloc(each.nbytes, CATEGORY_INDEX[each.category], each.label, each.module)
            for each in one.standing
            if each.nbytes > 0
        ]
        for tensor in reversed(made):
            added.free(tensor)
        if made:
            segment = next_segment(stream)
            stream = replace(joined(stream, added), between=(*stream.between, (segment, one.phase)))
    return stream


def gathered_bytes(stream: RankStream, micro_batch: int) -> int:
    """Most that forward holds of gathered parameters beside what stands between iterations."""
    sizes = stream.sizes(micro_batch)
    kinds = [CATEGORY_INDEX[Category.PARAMETERS], CATEGORY_INDEX[Category.COMMUNICATION]]
    counted = np.isin(stream.category, kinds)
    live = np.cumsum(stream.event_sign * np.where(counted, sizes, 0)[stream.event_tensor])
    end = np.flatnonzero(stream.event_segment <= stream.step_segments[-1])[-1]
    forward = (stream.event_segment == stream.pass_segments[-1]) & ~stream.event_in_backward
    return max(0, int(live[forward].max(initial=0)) - int(live[end]))
