"""One row of published measurements beside its estimate."""

from benchmarks.accuracy_cases import AnyCase, case_of
from benchmarks.accuracy_estimate import Estimator, states_of, uncounted_of
from benchmarks.published_rows import Row
from gpu_plan.planner.memory.allocator.replay import simulate
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.units import GIB

ALONE = 0.03
"""Rows where the states by themselves come this close to the measured peak say little about anything else."""


def line_of(estimator: Estimator, row: Row) -> Row | str:
    """Estimate and measurement of a run that lived, or why it is set aside."""
    case = case_of(row)
    if isinstance(case, str):
        return case
    judgement = estimator.judge(case, int(row["micro_batch_per_gpu"]))
    return _described(row, case) | _figures(judgement) | _errors(row, case, judgement)


def died_line_of(estimator: Estimator, row: Row) -> Row | str:
    """What is said of a run that died, or why it is set aside."""
    case = case_of(row)
    if isinstance(case, str):
        return case
    judgement = estimator.judge(case, int(row["micro_batch_per_gpu"]))
    return _described(row, case) | _figures(judgement)


def _described(row: Row, case: AnyCase) -> Row:
    return {
        "id": row["id"],
        "group": ", ".join([row["group"], row["task"], case.strategy, *(["compiled"] if row.get("compile") else [])]),
        "source": row["source"],
        "model": row["model"],
        "gpus": case.cluster,
        "micro_batch": int(row["micro_batch_per_gpu"]),
        "seq_len": case.seq_len,
        "kernels": case.kernels,
    }


def _figures(judgement: StepJudgement) -> Row:
    simulated = judgement.simulated
    assert simulated is not None
    return {
        "peak_allocated": judgement.profile.peak_allocated_bytes,
        "phase_of_peak": str(judgement.profile.phase_of_peak),
        "peak_reserved": simulated.reserved_bytes,
        "squeezed": simulated.squeezed_bytes,
        "retries": simulated.retries,
        "capacity": judgement.capacity_bytes,
        "device_low": judgement.used_low_bytes,
        "device_expected": judgement.expected_bytes,
        "device_high": judgement.used_high_bytes,
        "verdict": judgement.verdict,
    }


def _errors(row: Row, case: AnyCase, judgement: StepJudgement) -> Row:
    """Measured figures in bytes; errors are estimate / measured - 1."""
    measured, found = row["measured"], {}
    if "peak_allocated_gib" in measured:
        peak = measured["peak_allocated_gib"] * GIB + uncounted_of(case, judgement.plan.stream.trace)
        states = states_of(case, judgement.plan.stream.trace)
        above = (judgement.profile.peak_allocated_bytes - states) / (peak - states) - 1
        found |= {"measured_peak_allocated": round(peak), "states": states, "states_error": states / peak - 1}
        found |= {"peak_allocated_error": judgement.profile.peak_allocated_bytes / peak - 1}
        found |= {"above_states_error": above, "states_suffice": abs(states / peak - 1) <= ALONE}
    if "peak_active_gib" in measured:
        # What was freed and still waits for another stream counts as active: FSDP2 records no streams, nothing waits.
        active = measured["peak_active_gib"] * GIB
        found |= {"measured_peak_active": round(active)}
        found |= {"peak_active_error": judgement.profile.peak_allocated_bytes / active - 1}
    if "peak_reserved_gib" in measured:
        reserved = measured["peak_reserved_gib"] * GIB
        found |= {"measured_peak_reserved": round(reserved)}
        found |= {"peak_reserved_error": found_reserved(judgement) / reserved - 1}
    if "nvidia_smi_gib" in measured:
        used = measured["nvidia_smi_gib"] * GIB
        expected = settled_reserved(judgement) + sum(term.expected for term in judgement.terms)
        found |= {"measured_device": round(used), "device_error": expected / used - 1}
        found |= {"device_inside": judgement.used_low_bytes <= used <= judgement.used_high_bytes}
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
    squeezed = judgement.simulated.squeezed_bytes
    return judgement.simulated.reserved_bytes if squeezed is None else squeezed
