"""How long a host takes to issue an eager operator: by what it records, and by the processor beside the GPU."""

from enum import Enum

from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.speed.rates import Rate, efficiency_data
from gpu_plan.planner.units import median


class Issuing(Enum):
    """What the host does beside issuing an operator; the words of efficiency.toml and what a note says."""

    NO_GRAD = "no_grad", "without gradients"
    RECORDING = "recording", "recording gradients"
    REENTRANT = "reentrant", "with reentrant checkpoints"
    CHECKPOINTED = "checkpointed", "with checkpoints"
    CORE = "megatron_core", "in Megatron-core's layers"
    CORE_CHECKPOINTED = "megatron_core_checkpointed", "in Megatron-core's layers and checkpoints"
    DEEPSPEED = "megatron_deepspeed", "in Megatron-DeepSpeed's layers"
    DEEPSPEED_CHECKPOINTED = "megatron_deepspeed_checkpointed", "in Megatron-DeepSpeed's layers and checkpoints"


def host_operator_seconds(gpu: Gpu, issuing: Issuing) -> Rate:
    """Seconds that the host of a `gpu` needs to issue one eager operator, as a duration: `slow` is the longest."""
    kind, words = issuing.value
    row = next(row for row in efficiency_data()["issuing"] if row["kind"] == kind)
    seconds = efficiency_data()["overhead"]["host_us"] * 1e-6
    slowest, usual, fastest, what = _processor(gpu)
    expected = seconds * row["expected"] * usual
    return Rate(
        slow=seconds * row["slow"] * slowest * older_interpreter(),
        expected=expected,
        fast=seconds * row["fast"] * fastest,
        basis="source",
        note=f"the host issues an operator in {expected * 1e6:.0f} us {words} (from one published run; {what})",
    )


def older_interpreter() -> float:
    """At most how many times as long a host issues whose Python is older than what was measured under."""
    row = efficiency_data()["interpreter"]
    return float(1 + row["share"] * (row["older"] - 1))


def allocation_share() -> tuple[float, float, float]:
    """Host time of an operator that only finds memory, over that of one that computes: slow, expected, fast. In the
    functions of a kernel library it is a part of the operator behind it."""
    row = efficiency_data()["allocating"]
    return row["slow"], row["share"], 0.0


def view_share() -> tuple[float, float, float]:
    """Host time of what only changes a shape, over that of an operator that computes: slow, expected, fast."""
    row = efficiency_data()["viewing"]
    return row["slow"], row["share"], 0.0


def _processor(gpu: Gpu) -> tuple[float, float, float, str]:
    """Time that one core takes over that of the machine which was measured: longest, usual, shortest; and whose."""
    overhead = efficiency_data()["overhead"]
    measured = overhead["host_ghz"] * overhead["host_work"]
    rows = efficiency_data()["hosts"]
    own = [row for row in rows if row["capability"] == _capability(gpu)]
    times = [measured / (row["ghz"] * row["work"]) for row in own or rows]
    usual = median(times) if own else 1.0
    return max(times), usual, min(times), f"on processors of {gpu.short} servers" if own else "processor not known"


def _capability(gpu: Gpu) -> str | None:
    """Compute capability as the table writes it; None where the processor is part of the module (Grace)."""
    if gpu.compute_capability is None or gpu.form_factor == "Superchip":
        return None
    return ".".join(map(str, gpu.compute_capability))
