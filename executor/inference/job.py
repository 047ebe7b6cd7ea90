"""What of a plan an inference run needs: where the weights lie, how they are spread, how much is run at once. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.workload.precisions import stored_precision

Layout = Literal["single", "tensor", "pipeline", "replicas"]
"""`single`: one process, its modules over the devices of a map; `tensor`, `pipeline`: one process per shard or stage;
`replicas`: a whole model in each process."""
Place = int | str
"""A GPU's number, `cpu` or `disk`."""

DISK, CPU = "disk", "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceJob:
    """One run of prompts through one model."""

    model: str
    """Folder with a config.json and safetensors, or a hub id."""
    revision: str | None = None
    device_map: Mapping[str, Place] = field(default_factory=dict)
    """Module to place, as accelerate reads it; empty: the whole model on the main device."""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    replicas: int = 1
    stages: tuple[int, ...] = ()
    """Of each pipeline stage, its number of layers; empty: even."""
    batch: int = 1
    """Prompts per forward pass on one replica."""
    new_tokens: int | None = None
    """At most so many for each prompt; None: not planned."""
    context: int | None = None
    """Prompt plus new tokens that the plan has room for."""
    dtype: str | None = None
    """Torch's name; None: as stored."""
    attention: str | None = None
    """As transformers names its implementations."""
    cache: str | None = None
    """`static` or `fp8`; None for what `generate` does by itself."""
    chunk: int | None = None
    """Tokens of a prompt that `generate` takes at once; None: all of them."""
    on_cpu: bool = False
    """Whether what the plan calls its devices is this machine's CPU."""

    @property
    def layout(self) -> Layout:
        if self.pipeline_parallel > 1:
            return "pipeline"
        if self.tensor_parallel > 1:
            return "tensor"
        return "replicas" if self.replicas > 1 else "single"

    @property
    def world_size(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel * self.replicas

    @property
    def main_device(self) -> Place:
        return CPU if self.on_cpu else 0

    @property
    def places(self) -> dict[str, Place]:
        """The device map as this machine has it: on a CPU plan device 0 is the CPU."""
        given = self.device_map or {"": self.main_device}
        return {name: CPU if self.on_cpu and isinstance(place, int) else place for name, place in given.items()}

    @property
    def offloads(self) -> bool:
        """Whether some weights are kept away from the device that computes with them."""
        places = set(self.places.values())
        return DISK in places or (CPU in places and not self.on_cpu)


def inference_job(saved: SavedPlan) -> InferenceJob:
    """The run that a plan of `--task infer` describes. InputError for a plan of another task."""
    workload, strategy, placement = saved.workload, saved.plan.strategy, saved.plan.placement
    if not is_inference(saved):
        raise InputError(
            f"the plan is for --task {workload.get('task', 'train')}, prompts need a plan for --task infer:"
            f" {saved.command}"
        )
    pipelined = strategy.pipeline_parallel > 1
    return InferenceJob(
        model=saved.model.id,
        revision=saved.model.revision if saved.model.source in ("cache", "hub") else None,
        device_map={} if placement is None or pipelined else _device_map(placement.device_map),
        tensor_parallel=strategy.tensor_parallel,
        pipeline_parallel=strategy.pipeline_parallel,
        replicas=strategy.data_parallel,
        stages=_stages(placement.device_map) if placement is not None and pipelined else (),
        batch=strategy.micro_batch_size,
        new_tokens=_integer(workload.get("new_tokens")),
        context=_integer(workload.get("context")),
        dtype=None if (precision := workload.get("precision")) is None else stored_precision(precision).dtype,
        attention=_ATTENTION.get(str(workload.get("attention"))),
        cache=_cache(workload),
        chunk=_integer(workload.get("chunk")),
        on_cpu=saved.cluster.get("gpu_id", saved.cluster["gpu"]) == "cpu",
    )


def is_inference(saved: SavedPlan) -> bool:
    """Whether prompts are run, not a training."""
    return saved.workload.get("task") == "infer"


def with_batch(job: InferenceJob, batch: int) -> InferenceJob:
    """The same run with another number of prompts at once."""
    return replace(job, batch=batch)


_ATTENTION = {"eager": "eager", "sdpa": "sdpa", "flash": "flash_attention_2"}


_LAYER = re.compile(r"(?:.*\.)?(?:layers|h|block)\.(\d+)$")


def place_from(word: str) -> Place:
    """`cuda:1` as 1; `cpu` and `disk` as they are."""
    kind, colon, number = word.partition(":")
    return int(number) if kind == "cuda" and colon and number.isdigit() else word


def _device_map(words: Mapping[str, str]) -> dict[str, Place]:
    return {name: place_from(word) for name, word in words.items()}


def _stages(words: Mapping[str, str]) -> tuple[int, ...]:
    """Layers of each stage, from a map in which `cuda:N` is the N-th; empty where that cannot be told."""
    counts: dict[int, int] = {}
    for name, word in words.items():
        place = place_from(word)
        if _LAYER.match(name) and isinstance(place, int):
            counts[place] = counts.get(place, 0) + 1
    return tuple(counts[stage] for stage in sorted(counts))


def _cache(workload: Mapping[str, object]) -> str | None:
    if workload.get("kv_dtype") == "fp8":
        return "fp8"
    return "static" if workload.get("cache") == "static" else None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
