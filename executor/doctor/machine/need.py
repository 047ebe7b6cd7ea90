"""What a plan asks of each machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.workload.optimizers.registry import stored_traits

_PACKAGES_BY_STRATEGY = {"zero1": "deepspeed", "zero2": "deepspeed", "zero3": "deepspeed"}


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
    on_cpu = saved.cluster.get("gpu") == "cpu"
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
    precision = saved.plan.strategy.precision
    pure = precision == "bf16"
    weight = 2 if pure else 4
    if saved.workload.get("peft") == "qlora":
        weight = 1
    state = stored_traits(saved.workload.get("optimizer")).saved_bytes[pure]
    total = saved.model.parameters * weight + round(saved.model.trainable_parameters * state)
    if saved.plan.strategy.name.startswith("zero") and precision != "fp32":
        total += saved.model.parameters * 2
    return total


def _loading_bytes(saved: SavedPlan, ranks: int) -> int:
    """`from_pretrained` on every rank holds the model once for each; FSDP and ZeRO-3 can load it once."""
    once = saved.plan.strategy.name in {"fsdp", "fsdp1", "hsdp", "zero3"}
    width = 2 if saved.plan.strategy.precision == "bf16" else 4
    if saved.workload.get("peft") == "qlora":
        width = 1
    return saved.model.parameters * width * (1 if once else ranks)


def _packages(saved: SavedPlan) -> tuple[str, ...]:
    names = ["torch", "accelerate", "transformers"]
    by_strategy = _PACKAGES_BY_STRATEGY.get(saved.plan.strategy.name)
    if by_strategy:
        names.append(by_strategy)
    if saved.workload.get("peft") in {"lora", "qlora"}:
        names.append("peft")
    package = stored_traits(saved.workload.get("optimizer")).package
    if saved.workload.get("peft") == "qlora":
        names.append("bitsandbytes")
    elif package:
        names.append(package)
    if saved.plan.strategy.precision.startswith("fp8"):
        settings = saved.workload.get("settings")
        backend = settings.get("fp8.backend") if isinstance(settings, Mapping) else None
        names.append("transformer-engine" if backend == "te" else "torchao")
    return tuple(names)


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
