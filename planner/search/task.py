"""What the search asks of a task: training and generating differ in this, and in nothing else that a search knows."""

from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.plan.figures import (
    HostFigures,
    SpeedFigures,
    StrategyChoice,
)
from gpu_plan.planner.search.evaluator import BaseEvaluator, J
from gpu_plan.planner.search.ranking.rules import Ranking
from gpu_plan.planner.search.shown.sections import Details

F = TypeVar("F")
"""A family of candidates: everything but what is found by trying sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(Generic[J]):
    """A candidate that cannot run, and why."""

    judgement: J
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored(Generic[J]):
    """What trying a family came to: its best candidate, and one that fails."""

    best: J | None = None
    rejected: Rejected[J] | None = None
    others: tuple[J, ...] = ()
    """Further candidates whose tensors leave room; their allocator was not simulated."""


class Task(Protocol[F, J]):
    """One job."""

    @property
    def evaluator(self) -> BaseEvaluator[Any]:
        """What judges its candidates."""

    def families(self) -> Iterator[F]:
        """Families to try, simplest first. UsageError where the options leave none."""

    def finer(
        self,
        ranking: Ranking,
        plans: Sequence[J],
        rejected: Sequence[Rejected[J]] = (),
        others: Sequence[J] = (),
    ) -> Iterator[F]:
        """Families around those that were looked at; what was found is read as it grows."""

    def name(self, family: F) -> str:
        """Name of a family in messages."""

    def words_of(self, family: F) -> str:
        """The same, with all that tells it from families of one name."""

    def refusal(self, family: F) -> str | None:
        """Why a family makes no sense here; None where it does."""

    def hopeless(self, family: F, ranking: Ranking, plans: Sequence[J]) -> str | None:
        """Why a family cannot come before all of `plans`, in words, where finding out would cost more than a bound; or
        why it is not looked at though nobody ruled it out. None where it is explored."""

    def by_states(self, family: F) -> J | None:
        """A family judged by what stands without any step, at its smallest batch: a lower bound, and nothing is traced
        for it. None where that tells nothing."""

    def explore(self, family: F, *, exhaustive: bool) -> Explored[J]:
        """A family's candidates, judged. `exhaustive`: in full, even where the model's states alone rule it out.

        CannotSplitError where it turns out to make no sense.
        """

    def smaller(self) -> Iterator[tuple[str, "Task[F, J]"]]:
        """Changes of the job that may make it fit, in words, the smallest first."""

    def on(self, cluster: Cluster) -> "Task[F, J]":
        """The same job on other devices, with nothing fixed about how it is spread."""

    def footprints(self) -> frozenset[object]:
        """What its candidates are as far as memory goes: where nothing is new, nothing fits that did not."""

    def fitting(self) -> J | None:
        """A candidate that fits, found with as little work as may be; None where there is none."""

    def words(self, judgement: J) -> str:
        """A candidate in the words of a suggestion."""

    def choice(self, judgement: J) -> StrategyChoice:
        """The strategy section."""

    def speed(self, judgement: J) -> SpeedFigures:
        """The speed section."""

    def host(self, judgement: J) -> HostFigures | None:
        """RAM of a node, where it is told apart."""

    def details(self, judgement: J, *, lost: bool, best: bool) -> Details:
        """What else the document says of a candidate."""


AnyTask = Task[Any, Any]
