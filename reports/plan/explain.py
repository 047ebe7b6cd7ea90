"""Why the peak is what it is: the largest tensors that stand there, as rows of words."""

from gpu_plan.planner.plan.document import Candidate
from gpu_plan.planner.units import format_bytes

HEADER = ("bytes", "category", "module", "operator", "tensors", "basis")


def explain_rows(candidate: Candidate, limit: int = 20) -> list[tuple[str, ...]]:
    """One row per tensor line, largest first, in the order of HEADER; empty where none were kept."""
    lines = sorted(candidate.explain or (), key=lambda line: -line.bytes)[:limit]
    rows: list[tuple[str, ...]] = []
    for line in lines:
        shape = f"[{', '.join(map(str, line.shape))}] {line.dtype}"
        if line.count > 1:
            shape = f"{line.count} × {shape}"
        category = line.category.replace("_", " ")
        module = line.module or ("" if line.origin else "(the model itself)")
        if line.origin:
            module = f"{module} ({line.origin})".strip()
        rows.append((format_bytes(line.bytes), category, module, line.operator or "", shape, line.basis))
    return rows


def explained_share(candidate: Candidate, limit: int = 20) -> tuple[int, int] | None:
    """Bytes of the rows shown, and of the whole peak; None where there is nothing to compare."""
    if candidate.memory is None or not candidate.explain:
        return None
    lines = sorted(candidate.explain, key=lambda line: -line.bytes)[:limit]
    return sum(line.bytes for line in lines), candidate.memory.peak_allocated_bytes
