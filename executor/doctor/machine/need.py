"""What a plan asks of each machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_plan.planner.dtypes import element_bits
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.strategy.known import known_traits
from gpu_plan.planner.workload.adapters import stored_adapters
from gpu_plan.planner.workload.optimizers.registry import stored_optimizer
from gpu_plan.planner.workload.precisions import stored_precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The planned job, as far as a machine must bear it; None where there is no plan to tell."""

    nodes: int = 1
    ranks: int | None = None
    """On each machine."""
    on_cpu: bool = False
    gpu_name: str | None = None
    strategy: str | None = None
    precision: str | None = None
    checkpoint_bytes: int | None = None
    """Of one complete checkpoint, weights and optimizer; all ranks together."""
    host_bytes: int | None = None
    """RAM for tensors, all ranks of a machine together."""
    loading_bytes: int | None = None
    """RAM in which the ranks of a machine hold the weights while they load them."""
    nvme_bytes: int | None = None
    headroom_bytes: int | None = None
    """Device memory that the plan leaves free on its fullest GPU."""
    model_bytes: int | None = None
    """Of the checkpoint that is loaded."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """That the plan was made with, by distribution name."""
    packages: tuple[str, ...] = ()
    """Distributions without which it cannot run."""


def need_of(saved: SavedPlan) -> Need:
    """What `saved` asks of each of its machines."""
    strategy, memory = saved.plan.strategy, saved.plan.memory
    ranks = _integer(saved.cluster.get("gpus_per_node")) or 1
    on_cpu = saved.cluster.get("gpu_id", saved.cluster.get("gpu")) == "cpu"
    host = memory.host_bytes * ranks if memory is not None else None
    if on_cpu and memory is not None:
        host = memory.device_used_bytes * ranks + (host or 0)
    return Need(
        nodes=_integer(saved.cluster.get("nodes")) or 1,
        ranks=ranks,
        on_cpu=on_cpu,
        gpu_name=None if on_cpu else str(saved.cluster.get("gpu_name") or saved.cluster.get("gpu")),
        strategy=strategy.name,
        precision=strategy.precision,
        checkpoint_bytes=checkpoint_bytes(saved),
        host_bytes=host,
        loading_bytes=_loading_bytes(saved, ranks) if memory is None or memory.host is None else memory.host.load_bytes,
        nvme_bytes=memory.nvme_bytes * ranks if memory is not None else None,
        headroom_bytes=memory.headroom_bytes if memory is not None and not on_cpu else None,
        model_bytes=saved.model.stored.bytes if saved.model.stored is not None else None,
        versions=dict(saved.created_with),
        packages=_packages(saved),
    )


def checkpoint_bytes(saved: SavedPlan) -> int:
    """Bytes of one checkpoint that `accelerator.save_state` writes: every weight, and the optimizer's state.

    Mixed precision keeps fp32 weights; DeepSpeed keeps 2-byte weights beside fp32 ones (accelerate/checkpointing.py,
    deepspeed/runtime/engine.py save_checkpoint). AdamW holds two fp32 values for each trainable parameter.
    """
    precision = stored_precision(saved.plan.strategy.precision)
    state = stored_optimizer(saved.workload.get("optimizer")).saved_bytes[precision.is_pure]
    weight = _weight_bytes(saved)
    total = saved.model.parameters * weight + round(saved.model.trainable_parameters * state)
    traits = known_traits(saved.plan.strategy.name)
    if traits is not None and traits.uses_deepspeed and precision.deepspeed:
        total += saved.model.parameters * 2
    return total


def _loading_bytes(saved: SavedPlan, ranks: int) -> int:
    """`from_pretrained` on every rank holds the model once for each; FSDP and ZeRO-3 can load it once."""
    traits = known_traits(saved.plan.strategy.name)
    once = traits is not None and traits.shards_model
    return saved.model.parameters * _weight_bytes(saved) * (1 if once else ranks)


def _weight_bytes(saved: SavedPlan) -> int:
    """Bytes of a weight; 4-bit ones are taken with their scales and what is not quantised."""
    if stored_adapters(saved.workload.get("peft")).quantises:
        return 1
    return element_bits(stored_precision(saved.plan.strategy.precision).weights) // 8


def _packages(saved: SavedPlan) -> tuple[str, ...]:
    traits = known_traits(saved.plan.strategy.name)
    names = ["torch", "accelerate", "transformers", *(() if traits is None else traits.packages)]
    names += stored_adapters(saved.workload.get("peft")).packages
    names += filter(None, [stored_optimizer(saved.workload.get("optimizer")).package])
    if stored_precision(saved.plan.strategy.precision).float8:
        settings = saved.workload.get("settings")
        backend = settings.get("fp8.backend") if isinstance(settings, Mapping) else None
        names.append("transformer-engine" if backend == "te" else "torchao")
    return tuple(dict.fromkeys(names))


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
