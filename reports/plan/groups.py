"""What does not fit, alike reasons drawn together."""

import re
from collections.abc import Iterable

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.plan.document import Candidate
from gpu_plan.reports.plan.words import checkpointing_words, shape_words

_NUMBER = re.compile(r"\d[\d,.]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class LosingGroup:
    """Candidates that lost for the same reason but for its numbers."""

    closest: Candidate
    """The one that misses by least: where it does not fit, the others cannot."""
    members: tuple[Candidate, ...]

    @property
    def reason(self) -> str:
        return self.closest.reason or ""

    @property
    def aside(self) -> str:
        """With what options the closest was tried, and how many more are like it."""
        choice = self.closest.strategy
        pieces = []
        if self.closest.inference is not None or self.closest.serving is not None:
            pieces += shape_words(self.closest)
        elif self.closest.memory is not None:
            pieces.append(f"micro batch {choice.micro_batch_size}, {checkpointing_words(choice)}")
        if len(self.members) > 1:
            pieces.append(f"+{len(self.members) - 1} similar")
        return "; ".join(pieces)


def group_rejected(rejected: Iterable[Candidate], plans: Iterable[Candidate] = ()) -> list[LosingGroup]:
    """Groups by strategy, offload and wording: those without any plan first, then by how much they miss.

    A strategy that has a plan at a smaller batch lost only the larger one, which is the lesser news.
    """
    groups: dict[tuple[str, str, str], list[Candidate]] = {}
    for candidate in rejected:
        reason = candidate.reason or ""
        wording = _NUMBER.sub("#", reason.rpartition(":")[0] or reason)
        key = (candidate.strategy.name, candidate.strategy.offload, wording)
        groups.setdefault(key, []).append(candidate)
    found = [LosingGroup(closest=min(group, key=_excess), members=tuple(group)) for group in groups.values()]
    planned = {_kind(candidate) for candidate in plans}
    return sorted(found, key=lambda group: (_kind(group.closest) in planned, _excess(group.closest)))


def _kind(candidate: Candidate) -> tuple[str, str]:
    return candidate.strategy.name, candidate.strategy.offload


def _excess(candidate: Candidate) -> float:
    return -candidate.memory.headroom_bytes if candidate.memory else float("inf")
