"""When a pipeline ends: every rank runs its actions in order, each as soon as what it needs has arrived."""

from collections.abc import Mapping, Sequence

from gpu_plan.planner.pipeline.schedules import Action, Kind
from gpu_plan.planner.plain.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One action, in seconds from the step's start."""

    rank: int
    action: Action
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One step of all ranks."""

    spans: tuple[Span, ...]
    ranks: int

    @property
    def seconds(self) -> float:
        """Until the last rank is done."""
        return max((span.end for span in self.spans), default=0.0)

    def busy(self, rank: int) -> float:
        """Seconds in which one rank computes."""
        return sum(span.end - span.start for span in self.spans if span.rank == rank)

    @property
    def bubble(self) -> float:
        """Share of all ranks' time in which they wait for others, 0 to 1; stages of uneven length are in it."""
        whole = self.seconds * self.ranks
        return 1 - sum(self.busy(rank) for rank in range(self.ranks)) / whole if whole else 0.0


def run(
    orders: Sequence[Sequence[Action]],
    seconds: Mapping[tuple[Kind, int], float],
    sending: float = 0.0,
    *,
    waits: bool = False,
) -> Timeline:
    """Runs every rank's actions; `seconds` by kind and stage, `sending` from one stage to the next, for which the
    sender too `waits` or goes on.

    AssertionError for orders in which ranks wait for one another for ever.
    """
    ended: dict[tuple[Kind, int, int], float] = {}
    stages = 1 + max(action.stage for order in orders for action in order)
    free = [0.0] * len(orders)
    place = [0] * len(orders)
    owner = {action.stage: rank for rank, order in enumerate(orders) for action in order}
    spans: list[Span] = []
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(orders):
            while place[rank] < len(order):
                action = order[place[rank]]
                ready = _ready(action, ended, stages, owner, sending)
                if ready is None:
                    break
                start = max(free[rank], ready)
                end = start + seconds[action.kind, action.stage]
                free[rank] = end + (sending if waits and _goes_on(action, stages, owner) else 0.0)
                kind = Kind.BACKWARD if action.kind is Kind.INPUT else action.kind
                ended[kind, action.stage, action.micro_batch] = end
                spans.append(Span(rank=rank, action=action, start=start, end=end))
                place[rank] += 1
                moved = True
    if any(place[rank] < len(order) for rank, order in enumerate(orders)):
        raise AssertionError("a pipeline's ranks wait for one another")
    return Timeline(spans=tuple(spans), ranks=len(orders))


def _goes_on(action: Action, stages: int, owner: Mapping[int, int]) -> bool:
    """Whether what an action makes is sent to another rank."""
    if action.kind is Kind.WEIGHT:
        return False
    following = action.stage + (1 if action.kind is Kind.FORWARD else -1)
    return 0 <= following < stages and owner[following] != owner[action.stage]


def _ready(
    action: Action,
    ended: Mapping[tuple[Kind, int, int], float],
    stages: int,
    owner: Mapping[int, int],
    sending: float,
) -> float | None:
    """When an action's input is there; None where what makes it has not run."""
    if action.kind is Kind.WEIGHT:
        return ended.get((Kind.BACKWARD, action.stage, action.micro_batch))
    if action.kind is Kind.FORWARD:
        before, first = action.stage - 1, action.stage == 0
        kind = Kind.FORWARD
    else:
        before, first = action.stage + 1, action.stage == stages - 1
        kind = Kind.FORWARD if first else Kind.BACKWARD
        before = action.stage if first else before
        first = False
    if first:
        return 0.0
    found = ended.get((kind, before, action.micro_batch))
    apart = owner[before] != owner[action.stage]
    return None if found is None else found + (sending if apart else 0.0)
