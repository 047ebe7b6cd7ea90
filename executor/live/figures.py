"""What is said of a run while it runs: words and numbers from ranks' pulses; pure."""

from collections.abc import Sequence

from gpu_plan.executor.records.run import Attempt, Phase, RunRecord, status_words, to_first_step
from gpu_plan.executor.supervise.causes.losses import loss_kind
from gpu_plan.executor.supervise.follow.phases import WORDS
from gpu_plan.executor.supervise.follow.pulse import Pulse
from gpu_plan.planner.plan.figures import MemoryFigures
from gpu_plan.planner.units import format_bytes


def planned_bytes(memory: MemoryFigures | None, kind: str) -> int | None:
    """What the plan says of the figure that a pulse calls `kind`; None where the two do not mean the same.

    A CPU rank's resident memory holds the interpreter and its libraries too, of which a plan knows nothing.
    """
    if memory is None:
        return None
    return {"in use": memory.device_used_bytes, "allocated": memory.peak_allocated_bytes}.get(kind)


def memory_words(pulse: Pulse, memory: MemoryFigures | None) -> str:
    """`61.2 GiB in use (plan 60.8 GiB, +0.7 %)`; empty where nothing was measured."""
    if pulse.memory_bytes is None:
        return ""
    words = f"{format_bytes(pulse.memory_bytes)} {pulse.memory_kind}"
    planned = planned_bytes(memory, pulse.memory_kind)
    if planned:
        return f"{words} (plan {format_bytes(planned)}, {(pulse.memory_bytes - planned) / planned:+.1%})"
    if memory is not None and pulse.memory_kind == "resident":
        return f"{words} (plan {format_bytes(memory.peak_allocated_bytes)} of tensors)"
    return words


def seconds_words(seconds: float) -> str:
    """`214 ms`, `3.21 s`, `2 min 05 s`, `3 h 12 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def slowest(pulses: Sequence[Pulse]) -> Pulse | None:
    """The rank that is furthest behind: the job is no further."""
    return min(pulses, key=lambda pulse: (pulse.last_step or 0, pulse.rank), default=None)


def fullest(pulses: Sequence[Pulse]) -> Pulse | None:
    """The rank that took the most memory."""
    measured = [pulse for pulse in pulses if pulse.memory_bytes is not None]
    return max(measured, key=lambda pulse: pulse.memory_bytes or 0, default=None)


def loss_of(pulses: Sequence[Pulse]) -> float | None:
    """The loss that the lowest rank reported."""
    return next((pulse.loss for pulse in pulses if pulse.loss is not None), None)


def step_words(pulses: Sequence[Pulse]) -> str:
    """`step 120 · loss 2.3410 · 840 ms per step · 9,752 tokens/s`; empty before the first step."""
    behind = slowest(pulses)
    if behind is None or behind.last_step is None:
        return ""
    parts = [f"step {behind.last_step}"]
    loss = loss_of(pulses)
    if loss is not None:
        parts.append(f"loss {loss:.4f}")
    if behind.step_seconds is not None:
        parts.append(f"{seconds_words(behind.step_seconds)} per step")
        # Every rank counts its own tokens.
        tokens = sum(pulse.tokens / pulse.steps for pulse in pulses if pulse.steps)
        if tokens and behind.step_seconds > 0:
            parts.append(f"{tokens / behind.step_seconds:,.0f} tokens/s")
    return " · ".join(parts)


def not_finite_words(pulses: Sequence[Pulse]) -> str:
    """`the loss of rank 1 is NaN since step 3`, of the rank where it began; empty where all are finite numbers."""
    odd = [pulse for pulse in pulses if pulse.first_not_finite is not None]
    first = min(odd, key=lambda pulse: (pulse.first_not_finite or 0, pulse.rank), default=None)
    if first is None:
        return ""
    what = loss_kind(first.not_finite)
    whose = f" of rank {first.rank}" if len(pulses) > 1 else ""
    return f"the loss{whose} is {what} at step {first.first_not_finite}; --stop-on-nan ends a run there"


def progress_words(pulses: Sequence[Pulse], memory: MemoryFigures | None) -> str:
    """The same with memory: `... · most on rank 1: 61.2 GiB in use (plan 60.8 GiB, +0.7%)`."""
    words, full = step_words(pulses), fullest(pulses)
    if not words or full is None:
        return words
    where = f"most on rank {full.rank}: " if len(pulses) > 1 else ""
    return f"{words} · {where}{memory_words(full, memory)}"


def phase_words(name: str, behind: Sequence[Phase]) -> str:
    """`ranks started, importing torch (launcher 6.20 s)`; empty for a phase that nobody waits for."""
    words = WORDS.get(name, "")
    return f"{words} ({behind[-1].name} {seconds_words(behind[-1].seconds)})" if words and behind else words


def first_step_words(record: RunRecord, attempt: Sequence[Phase]) -> str:
    """`first step after 34.10 s: planning 9.80 s, launcher 6.20 s, ...`, of the run's last attempt; empty before it."""
    found = to_first_step(record.phases if len(record.attempts) == 1 else (), attempt)
    parts = ", ".join(f"{phase.name} {seconds_words(phase.seconds)}" for phase in found)
    return f"first step after {seconds_words(sum(phase.seconds for phase in found))}: {parts}" if found else ""


def attempt_words(attempt: Attempt) -> str:
    """`attempt 1 ended after 12.40 s: rank 1 was killed by SIGKILL after step 7`."""
    took = seconds_words((attempt.ended or attempt.started) - attempt.started)
    return f"attempt {attempt.number} ended after {took}: {attempt.explanation}"


def end_words(record: RunRecord) -> str:
    """`succeeded in 2 attempts, 24.10 s: 2 ranks done`."""
    took = seconds_words((record.ended or record.updated) - record.started)
    number = len(record.attempts)
    tries = f" in {number} attempts" if number > 1 else ""
    code = f", exit code {record.exit_code}" if record.exit_code else ""
    return f"{status_words(record.status)}{tries}, {took}{code}: {record.message}"
