"""One training run beside its estimate."""

from typing import Any

from benchmarks.accuracy.memory.cases import Case, Estimator, case_of, states_of, uncounted_of
from benchmarks.accuracy.memory.rules import died
from benchmarks.accuracy.models import Models
from benchmarks.accuracy.row import Row, identity, is_true, needed, number, software_group, text
from gpu_plan.planner.memory.allocator.replay import simulate
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.units import GIB
from gpu_plan.planner.workload.training import MOST_TOKENS

ALONE = 0.03
"""Rows where the states by themselves come this close to the measured peak say little about anything else."""
Line = dict[str, Any]


class MemoryLines:
    """Lines of the table; cases that share a trace are traced once."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._estimator = Estimator()

    def line(self, row: Row) -> Line:
        """Estimate and, of a run that lived, measurement. SetAside when the row cannot be scored."""
        case = case_of(row, self._models)
        most = MOST_TOKENS // case.seq_len
        micro_batch = needed(row, "micro_batch_per_gpu", "micro batch", most)
        judgement = self._estimator.judge(case, micro_batch)
        line = _described(row, case, micro_batch) | _figures(judgement)
        return line if died(row) else line | _errors(row, case, judgement)


def group_of(row: Row) -> str:
    """Rows of one group have one source and one kind of configuration."""
    words = text(row, "strategy").lower()
    families = {"single": "single", "fsdp1": "fsdp1", "fsdp2": "fsdp", "ddp": "ddp", "deepspeed zero": "zero"}
    strategy = next((name for word, name in families.items() if words.startswith(word)), "other")
    task = text(row, "task") or "training"
    compiled = ["compiled"] if is_true(row, "compile") else []
    return ", ".join([software_group(row), task, strategy, *compiled])


def _described(row: Row, case: Case, micro_batch: int) -> Line:
    return {
        "kind": "memory",
        "id": identity(row),
        "group": group_of(row),
        "source": text(row, "source"),
        "model": text(row, "model"),
        "gpus": case.cluster,
        "micro_batch": micro_batch,
        "seq_len": case.seq_len,
        "kernels": case.kernels,
        "died": died(row),
    }


def _figures(judgement: StepJudgement) -> Line:
    simulated = judgement.simulated
    assert simulated is not None
    return {
        "peak_allocated": judgement.profile.peak_allocated_bytes,
        "phase_of_peak": str(judgement.profile.phase_of_peak),
        "peak_reserved": simulated.reserved_bytes,
        "squeezed": simulated.reserved_under_pressure,
        "retries": simulated.retries,
        "capacity": judgement.capacity_bytes,
        "device_low": judgement.used_low_bytes,
        "device_expected": judgement.expected_bytes,
        "device_high": judgement.used_high_bytes,
        "device_parts": _parts(judgement),
        "device_filled": judgement.fills_device,
        "verdict": str(judgement.verdict),
    }


def _parts(judgement: StepJudgement) -> dict[str, list[int]]:
    """Least and most bytes of what an interval of device memory is made of, beside the tensors."""
    terms = judgement.terms if judgement.cached is None else (*judgement.terms, judgement.cached)
    return {term.name: [term.low, term.high] for term in terms}


def _errors(row: Row, case: Case, judgement: StepJudgement) -> Line:
    """Measured figures in bytes; errors are estimate / measured - 1."""
    found: Line = {}
    trace = judgement.plan.stream.trace
    if (allocated := number(row, "measured.peak_allocated_gib")) is not None:
        peak = allocated * GIB + uncounted_of(case, trace)
        states = states_of(case, trace)
        found |= {"measured_peak_allocated": round(peak), "states": states, "states_error": states / peak - 1}
        found |= {"peak_allocated_error": judgement.profile.peak_allocated_bytes / peak - 1}
        found |= {"states_suffice": abs(states / peak - 1) <= ALONE}
        if peak > states:
            above = (judgement.profile.peak_allocated_bytes - states) / (peak - states) - 1
            found |= {"above_states_error": above}
    if (peak_active := number(row, "measured.peak_active_gib")) is not None:
        # What was freed and still waits for another stream counts as active: FSDP2 records no streams, nothing waits.
        found |= {"measured_peak_active": round(peak_active * GIB)}
        found |= {"peak_active_error": judgement.profile.peak_allocated_bytes / (peak_active * GIB) - 1}
    if (peak_reserved := number(row, "measured.peak_reserved_gib")) is not None:
        found |= {"measured_peak_reserved": round(peak_reserved * GIB)}
        found |= {"peak_reserved_error": found_reserved(judgement) / (peak_reserved * GIB) - 1}
    if (smi := number(row, "measured.nvidia_smi_gib")) is not None:
        used = smi * GIB
        expected = settled_reserved(judgement) + sum(term.expected for term in judgement.terms)
        found |= {"measured_device": round(used), "device_error": expected / used - 1}
        found |= {"device_inside": bool(judgement.used_low_bytes <= used <= judgement.used_high_bytes)}
    return found


def settled_reserved(judgement: StepJudgement) -> int:
    """Reserved once the last cached memory has been given back: the device is sampled each second, and what stands
    before a release lasts no longer than the host takes to ask for the rest of one pass."""
    assert judgement.simulated is not None
    if not judgement.simulated.retries:
        return found_reserved(judgement)
    room = judgement.capacity_bytes - sum(term.expected for term in judgement.terms)
    return simulate(judgement.plan.stream, judgement.batch.micro_batch, capacity=room).reserved_at_end


def found_reserved(judgement: StepJudgement) -> int:
    """Peak reserved under the real capacity, cached memory given back on the way."""
    assert judgement.simulated is not None
    squeezed = judgement.simulated.reserved_under_pressure
    return judgement.simulated.reserved_bytes if squeezed is None else squeezed
