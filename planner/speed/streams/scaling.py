"""Why so many GPUs are not so many times as fast, in one paragraph with numbers."""

from gpu_plan.planner.speed.model import HOST_KINDS, Collective, StepTime, StepWork
from gpu_plan.planner.units import format_bytes

_WORTH_SAYING = 0.01
_MUCH = 0.1
_NAMES = {"all_reduce": "all-reduces", "all_gather": "all-gathers", "reduce_scatter": "reduce-scatters"}


def scaling_words(time: StepTime, work: StepWork, ranks: int, each: int = 1) -> str | None:
    """What `ranks` devices, or groups of `each` that compute one copy together, do, against one that has its own
    samples alone; None for one device."""
    if ranks < 2:
        return None
    alone = time.step_seconds - time.exposed_communication_seconds
    share = alone / time.step_seconds
    noun = "GPUs" if each == 1 else f"groups of {each} GPUs"
    said = f"{ranks} {noun} do the work of {ranks * share:.{1 if ranks < 100 else 0}f}: "
    if 1 - share < _WORTH_SAYING:
        hidden = _hidden(time, 0.0)
        waits = f"{said}a step of {_time(time.step_seconds)} waits for transfers less than 1 % of its time{hidden}"
        stepped = _on_host(time, work)
        return f"{waits}; {stepped}." if stepped else f"{waits}."
    said += f"of a step of {_time(time.step_seconds)}, {_time(alone)} are computation, and"
    said += f" {_time(time.exposed_communication_seconds)} ({1 - share:.0%}) are waited for transfers"
    said += _hidden(time, time.exposed_communication_seconds)
    stepped = _on_host(time, work)
    said += f"; of the computation {stepped}." if stepped else "."
    sent = _largest(work)
    if sent is not None:
        said += f" Most is sent by {sent}."
    once, every = (_bytes(work, per) for per in ("step", "micro_step"))
    if once > every and work.accumulation_steps < 8:
        twice = 2 * alone / (2 * alone + time.exposed_communication_seconds)
        said += f" Twice the accumulation steps, sending as often, would make it about {ranks * twice:.1f}."
    return said


def _on_host(time: StepTime, work: StepWork) -> str:
    """How long the host's processors step, where that is much; empty elsewhere."""
    share = time.optimizer_seconds / time.step_seconds
    if not work.optimizer.on_host or share < _MUCH:
        return ""
    return f"{_time(time.optimizer_seconds)} ({share:.0%} of the step) are the optimizer's on the host's processors"


def _hidden(time: StepTime, exposed: float) -> str:
    total = time.communication_seconds + time.host_transfer_seconds
    return f" ({_time(total - exposed)} more run beside the computation)" if total > 1.01 * exposed else ""


def _largest(work: StepWork) -> str | None:
    sums: dict[tuple[str, bool], int] = {}
    for one in work.collectives:
        key = (str(one.kind), one.kind in HOST_KINDS)
        sums[key] = sums.get(key, 0) + _moved(one, work)
    if not sums:
        return None
    (kind, _), moved = max(sums.items(), key=lambda item: item[1])
    return f"{_NAMES.get(kind, kind.replace('_', ' '))}: {format_bytes(moved)} in a step"


def _moved(one: Collective, work: StepWork) -> int:
    repeated = work.accumulation_steps if one.per == "micro_step" and one.phase != "step" else 1
    return one.bytes * one.count * repeated


def _bytes(work: StepWork, per: str) -> int:
    return sum(_moved(one, work) for one in work.collectives if one.per == per)


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
