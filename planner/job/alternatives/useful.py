"""Which alternatives are worth the reader's time beside a plan that fits."""

from collections.abc import Sequence

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.plan.document import Alternative
from gpu_plan.planner.search.judgement import Judgement

LEAST = 0.05
"""What a change gains at least to be told: a twentieth of the cost, or of the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """An alternative beside the plan that it is measured against."""

    alternative: Alternative
    cluster: Cluster
    best: Judgement
    beside: Cluster
    """Devices of the plan."""
    same_training: bool = False
    """Whether every step of the same batch comes to the same."""

    @property
    def cheaper(self) -> float:
        """How much more is done for the same money; for the same device-hours where nobody printed a price."""
        mine, theirs = self._hourly(self.cluster), self._hourly(self.beside)
        if mine is None or theirs is None:
            mine, theirs = float(self.cluster.world_size), float(self.beside.world_size)
        return self.alternative.samples_per_second / mine * theirs / self.best.samples_per_second - 1

    @property
    def frees(self) -> float:
        """Part of the same device that is freed."""
        if self.cluster.gpu.id != self.beside.gpu.id:
            return 0.0
        return (self.best.expected_bytes - self.alternative.device_used_bytes) / self.best.capacity_bytes

    @property
    def spares_host(self) -> bool:
        """Whether it does without the node's RAM that the plan keeps."""
        return self.best.offloads and not self.alternative.host_bytes_per_node

    @property
    def rank(self) -> tuple[bool, bool, float, str]:
        """Smaller first: without the node's RAM, what trains the same, then by what is gained, in hundredths."""
        gained = round(max(self.cheaper, self.frees), 2)
        return (not self.spares_host, not self.same_training, -gained, self.alternative.change)

    @property
    def is_useful(self) -> bool:
        """Whether it gains anything; half of the devices or more of them are an answer of their own. Taking to the
        node's RAM what stands on the devices is none."""
        if self.spares_host:
            return True
        if self.alternative.host_bytes_per_node and not self.best.offloads:
            return False
        if max(self.cheaper, self.frees) >= LEAST:
            return True
        return self.cluster != self.beside and self.cheaper >= -LEAST

    @staticmethod
    def _hourly(cluster: Cluster) -> float | None:
        return cluster.prices[0].usd_per_hour * cluster.world_size if cluster.prices else None


def in_order(gains: Sequence[Gain]) -> list[Alternative]:
    """All of them: what gains something first, what gains most before the rest."""
    return [gain.alternative for gain in sorted(gains, key=lambda gain: (not gain.is_useful, *gain.rank))]


def most_useful(gains: Sequence[Gain], most: int) -> list[Alternative]:
    """At most `most` of those that gain anything, what gains most first."""
    return [gain.alternative for gain in sorted(gains, key=lambda gain: gain.rank) if gain.is_useful][:most]
