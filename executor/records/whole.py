"""Everything that a run folder holds, as one value."""

from dataclasses import dataclass, field

from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.records.run import GOES_ON, Attempt, RunRecord
from gpu_plan.planner.plan.saved import SavedPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRun:
    """A run as its folder tells it."""

    folder: str
    record: RunRecord
    plan: SavedPlan | None = None
    """What the latest attempt runs; None where plan.json is missing or makes no sense."""
    ranks: tuple[RankRecord, ...] = ()
    """Of the latest attempt, in rank order; ranks without a readable record are missing."""
    supervisor_alive: bool = False
    """Whether the process that writes run.json still lives; on another machine it counts as gone. Of a run that an
    engine places: whether the engine still has its job."""
    engine: EngineJob | None = None
    """Where an engine placed it; None for a run of this machine."""
    earlier: dict[int, tuple[RankRecord, ...]] = field(default_factory=dict)
    """Rank records of attempts before the latest, by number."""
    problems: tuple[str, ...] = ()
    """What could not be read, one line each."""

    @property
    def status(self) -> str:
        """As run.json says; `lost` where it says that the run goes on and nobody looks after it any more."""
        goes_on = self.record.status in GOES_ON
        return "lost" if goes_on and not self.supervisor_alive else self.record.status

    @property
    def last_sign(self) -> float:
        """When something of the run was written last, by whomever; seconds since the epoch.

        What a killed supervisor wrote is as old as the last attempt's beginning.
        """
        return max([self.record.updated, *(rank.updated for rank in self.ranks)])

    @property
    def latest(self) -> Attempt | None:
        """The last attempt, None before the first."""
        return self.record.attempts[-1] if self.record.attempts else None
