"""What judging a candidate takes on one cluster, whatever the task."""

from typing import Generic, Protocol, TypeVar, cast

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.hardware.machines import usual_ram
from gpu_plan.planner.memory.allocator.settings import AllocatorSettings
from gpu_plan.planner.memory.allocator.words import allocator_settings
from gpu_plan.planner.memory.overheads import Term
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.search.device_use import simulated
from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.speed.model import SpeedModel
from gpu_plan.planner.strategy.host_memory import shortage
from gpu_plan.planner.trace.events import IntArray


class Job(Protocol):
    """What every workload says."""

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """`--set` pairs."""

    @property
    def reserve_bytes(self) -> int:
        """Bytes of each device kept free for others."""


W = TypeVar("W", bound=Job)
J = TypeVar("J", bound=Judgement)


@dataclass(slots=True, kw_only=True)
class BaseEvaluator(Generic[W]):
    """Judges candidates of one workload on one cluster."""

    workload: W
    cluster: Cluster
    speed: SpeedModel
    host_limit: int | None = None
    """Bytes of host memory on each node, where known."""
    evaluated: int = 0
    """Candidates that were judged so far."""

    @property
    def capacity_bytes(self) -> int:
        """Of one device, without what is kept free for others."""
        return self.cluster.capacity_bytes - self.workload.reserve_bytes

    @property
    def device_bytes(self) -> int | None:
        """All of one device, what nobody can use included, where that is known."""
        return None if self.cluster.gpu.is_cpu else self.cluster.gpu.marketed_bytes

    @property
    def usual_host_bytes(self) -> int | None:
        """RAM of the smallest usual node, where the node's own is not known."""
        cluster = self.cluster
        if cluster.host_ram_bytes is not None or cluster.gpu.is_cpu:
            return None
        return usual_ram(cluster.gpu, cluster.gpus_per_node).bytes

    @property
    def node_ram_bytes(self) -> int:
        """RAM that a node has or is taken to have; 0 where it is the device."""
        return 0 if self.cluster.gpu.is_cpu else self.cluster.host_ram_bytes or self.usual_host_bytes or 0

    @property
    def allocator(self) -> AllocatorSettings:
        """Settings of CUDA's caching allocator, as the job has them."""
        return allocator_settings(dict(self.workload.settings))

    def may_fit(self, judgement: J) -> bool:
        """Whether it may turn out to fit when its allocator is simulated, which holds no less than its tensors."""
        return judgement.device_verdict == "fits"

    def simulate(self, judgement: J, *, pressed: bool = True) -> J:
        """The same candidate with the caching allocator simulated, and under the real capacity where it must be.

        On a CPU there is no caching allocator: what is allocated is what is held. `pressed` as of `simulated`.
        """
        known = judgement.exact
        return self.simulate_blocks(judgement, pressed=pressed)[0] if known is None else cast("J", known)

    def simulate_blocks(self, judgement: J, *, pressed: bool = True) -> tuple[J, IntArray]:
        """As `simulate`, and the bytes that the allocator charges for each storage of the stream."""
        return simulated(
            judgement,
            judgement.stream,
            judgement.replayed,
            settings=judgement.allocator,
            caches=not self.cluster.gpu.is_cpu,
            pressed=pressed,
        )

    def unknown_disk_bytes(self, nvme_bytes: int) -> int:
        """What a node's ranks keep in files, of `nvme_bytes` each, where nothing is known of its disk: machines are
        rented and bought without one."""
        return nvme_bytes * self.cluster.gpus_per_node if self.cluster.nvme_bytes is None else 0

    def disk_shortage(self, judgement: Judgement) -> int | None:
        """Bytes of a node's disk that it needs, where that is known to be smaller; None where it suffices."""
        needed, known = judgement.nvme_bytes * self.cluster.gpus_per_node, self.cluster.nvme_bytes
        return needed if known is not None and needed > known else None

    def host_shortage(self, judgement: Judgement) -> Term | None:
        """The moment at which a node certainly needs more RAM than it is known to have; None where it suffices."""
        return None if self.host_limit is None else shortage(judgement.host_terms, self.host_limit)
