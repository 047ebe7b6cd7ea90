"""Ways to spread a generation over the devices of a cluster."""

from dataclasses import dataclass

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.workload.generation import InferWorkload

TITLES = {
    "single": "single GPU",
    "replicas": "replicas",
    "tp": "tensor parallel",
    "pp": "pipeline stages",
    "device-map": "device map",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One way; its degrees multiply to the number of devices used."""

    name: str
    data_parallel: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    offload: str = "none"

    @property
    def title(self) -> str:
        """Name in messages: `tensor parallel 4 x 2 replicas`."""
        degree = max(self.tensor_parallel, self.pipeline_parallel)
        words = TITLES[self.name] + (f" {degree}" if degree > 1 else "")
        if self.name == "replicas":
            return f"{self.data_parallel} replicas"
        return words + (f" x {self.data_parallel} replicas" if self.data_parallel > 1 else "")

    @property
    def moving_parts(self) -> int:
        """What there is to set up and to go wrong, in the order of the titles: the plainest has least."""
        return list(TITLES).index(self.name)

    @property
    def ranks(self) -> int:
        """Devices of one replica."""
        return self.tensor_parallel * self.pipeline_parallel


def whole(world: int) -> Layout:
    """A whole model on each of the devices."""
    return Layout(name="single") if world == 1 else Layout(name="replicas", data_parallel=world)


def layouts(workload: InferWorkload, cluster: Cluster) -> list[Layout]:
    """Those that the options leave, the plainest first."""
    world = cluster.world_size
    alone = world == 1 or workload.strategy == "single"
    plain = Layout(name="single") if alone else Layout(name="replicas", data_parallel=world)
    found = [plain] if workload.offload != "all" else []
    found += [
        Layout(name="tp", tensor_parallel=degree, data_parallel=world // degree)
        for degree in _degrees(workload.tensor_parallel, world, cluster.gpus_per_node)
    ]
    found += [
        Layout(name="pp", pipeline_parallel=degree, data_parallel=world // degree)
        for degree in _degrees(workload.pipeline_parallel, world, world)
    ]
    # One process spreads a model over the devices of its node; further nodes hold replicas.
    found.append(Layout(name="device-map", offload=workload.offload or "all", data_parallel=cluster.nodes))
    return [layout for layout in found if _wanted(layout, workload)]


def _degrees(given: int | None, world: int, most: int) -> list[int]:
    if given is not None:
        return [given] if given > 1 else []
    return [degree for degree in (2, 4, 8, 16) if degree <= most and world % degree == 0]


def _wanted(layout: Layout, workload: InferWorkload) -> bool:
    if workload.strategy is not None:
        return layout.name == workload.strategy
    if (workload.tensor_parallel or 1) > 1:
        return layout.name == "tp"
    if (workload.pipeline_parallel or 1) > 1:
        return layout.name == "pp"
    return workload.offload != "all" or layout.name == "device-map"
