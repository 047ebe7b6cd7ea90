"""What can be changed about a job: its task in other words, and on other devices; nothing is evaluated here."""

from collections.abc import Iterator
from dataclasses import replace

from gpu_plan.planner.hardware.catalog import load_gpus
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.job.alternatives.ways import Known, Way
from gpu_plan.planner.job.prepared import Openers
from gpu_plan.planner.job.ready import prepared
from gpu_plan.planner.model.kernels.sinks import has_kernel
from gpu_plan.planner.model.quantization.configs import scheme_of
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.search.nearest_change import grown
from gpu_plan.planner.search.task import AnyTask
from gpu_plan.planner.search.training.notes.experts import fused_experts, wide_experts
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.strategy.known import known_traits
from gpu_plan.planner.workload.generation import InferWorkload
from gpu_plan.planner.workload.precisions import PLAIN_WEIGHTS, default_precision, weights_in
from gpu_plan.planner.workload.stacks.registry import stack_names, traits_of

_LANGUAGE_MODEL = "ForCausalLM"
"""How transformers' classes of them end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it was asked for, and the task that it came to."""

    request: Request
    cluster: Cluster
    source: ModelSource
    note: Note
    openers: Openers
    task: AnyTask

    @property
    def captures(self) -> bool:
        """Whether every change of it runs a trainer anew to its first optimizer step."""
        words = dict(self.request.words)
        return self.source.kind == "diffused" or ("recipe" in words and words.get("task") != "infer")

    @property
    def known(self) -> Known:
        """What the ways of this job depend on."""
        config = self.source.config or {}
        task = self.task
        return Known(
            own_kernel=has_kernel(config.get("model_type"), self.cluster.gpu.compute_capability),
            stored=scheme_of(config) is not None,
            fused_experts=isinstance(task, TrainingTask) and fused_experts(task.evaluator.provider.spec()),
            wide_experts=isinstance(task, TrainingTask)
            and wide_experts(task.evaluator.provider.spec(), task.evaluator.workload),
            lean_stack=self._lean_stack,
            narrow_weights=self._narrow_weights,
            updates_itself=isinstance(task, TrainingTask)
            and (named := known_traits(task.evaluator.workload.strategy)) is not None
            and bool(named.own_model),
        )

    @property
    def _narrow_weights(self) -> str:
        workload = self.task.evaluator.workload
        if not isinstance(workload, InferWorkload) or workload.quantize != "none":
            return ""
        if workload.precision != PLAIN_WEIGHTS or self.cluster.gpu.is_cpu:
            return ""
        return str(weights_in(default_precision(self.cluster.gpu.supports_bf16).compute_dtype))

    @property
    def _lean_stack(self) -> str:
        """One for language models with adapters on one device, if any is known."""
        task = self.task
        if not isinstance(task, TrainingTask) or self.cluster.world_size > 1 or self.cluster.gpu.is_cpu:
            return ""
        if not task.evaluator.provider.spec().class_name.endswith(_LANGUAGE_MODEL):
            return ""
        return next((name for name in stack_names() if traits_of(name).leanest), "")


def asked(job: Job, way: Way) -> AnyTask:
    """The task of the request in other words; what it leaves open is searched."""
    return prepared(way.asked_of(job.request), job.cluster, job.source, job.note, job.openers).task


def more_devices(cluster: Cluster) -> Iterator[tuple[str, Cluster]]:
    for larger in grown(cluster):
        yield larger.spec, larger


def fewer_devices(cluster: Cluster) -> Iterator[tuple[str, Cluster]]:
    """Half of the nodes, or of the GPUs of the only one; of a machine that is known by name, whole machines alone."""
    if cluster.gpu.is_cpu:
        return
    if cluster.nodes > 1 and cluster.nodes % 2 == 0:
        smaller = replace(cluster, nodes=cluster.nodes // 2)
        yield smaller.spec, smaller
    elif cluster.nodes == 1 and cluster.platform is None and cluster.gpus_per_node % 2 == 0:
        smaller = replace(cluster, gpus_per_node=cluster.gpus_per_node // 2)
        yield smaller.spec, smaller


def larger_devices(job: Job) -> Iterator[tuple[str, Cluster]]:
    """As many of the next larger cards of the same maker, smallest first."""
    cluster = job.cluster
    for gpu in larger_cards(cluster.gpu):
        other = replace(
            cluster,
            gpu=gpu,
            platform=None,
            price=None,
            host_ram_bytes=None if cluster.platform else cluster.host_ram_bytes,
        )
        yield other.spec, other


def larger_cards(gpu: Gpu) -> list[Gpu]:
    """Cards of one maker with more memory that somebody rents out, the smallest of each size first."""
    if gpu.is_cpu or gpu.usable_bytes is None:
        return []
    sizes: dict[int, Gpu] = {}
    for other in load_gpus().values():
        size = other.marketed_bytes
        if (
            other.vendor != gpu.vendor
            or size is None
            or other.usable_bytes is None
            or size <= (gpu.marketed_bytes or 0)
        ):
            continue
        if other.prices:
            sizes.setdefault(size, other)
    return [sizes[size] for size in sorted(sizes)]
