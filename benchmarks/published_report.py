"""The comparison with published runs as Markdown."""

from typing import Any

from gpu_plan.planner.units import GIB

Row = dict[str, Any]

_HEAD = """# Estimates against published measurements

Full training of Meta-Llama-3-8B and Mistral-7B-v0.1, no LoRA, no quantisation. Written by
`python -m benchmarks.published_runs` from `benchmarks/data/published_single_gpu.json`; no GPU takes part. The measured
side is `torch.cuda.max_memory_allocated` and the allocated bytes after training, in GiB (2^30 bytes). Errors are
estimate / measured − 1. *States* is k·P/W alone: weights, gradients, two moments and the optimizer's foreach list.
*Above states* is what is left of the peak once they are taken off: the part where an estimate can be wrong.
Estimates are of the step as the run made it: its fused kernels, its loss and its transformers' attention are mirrored
in `benchmarks/published_kernels.py`. *Stock* is what `plan --pin` says of the same configuration on the installed
transformers; it differs where the run replaced kernels.
"""

_COLUMNS = (
    "row", "model", "GPUs", "micro batch", "seq", "kernels, loss", "measured peak", "estimate", "error", "phase",
    "states", "states alone", "above states: measured", "estimate", "measured at rest", "estimate", "error",
    "stock peak", "phase",
)  # fmt: skip

_SECTIONS = (
    ("beyond_states", "Rows where the states alone are more than 3 % off"),
    ("states_suffice", "Rows where the states alone come within 3 %: they say little"),
)


def markdown(found: dict[str, list[Row]]) -> str:
    """The whole page: one table per group, then what was set aside and why."""
    parts = [_HEAD]
    for key, title in _SECTIONS:
        parts += [f"## {title}\n", _table(found[key]), _differences(found[key])]
    parts += ["## Set aside\n", _reasons(found["set_aside"])]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def _table(lines: list[Row]) -> str:
    if not lines:
        return "None.\n"
    head = [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    return "\n".join([*head, *(f"| {' | '.join(_cells(line))} |" for line in lines)]) + "\n"


def _cells(line: Row) -> list[str]:
    kernels = "fused norms and rotary, " if line["fused_kernels"] else ""
    return [
        line["id"],
        line["model"].rpartition("/")[2],
        line["gpus"],
        str(line["micro_batch"]),
        str(line["seq_len"]),
        kernels + line["loss"],
        _gib(line["measured_peak"]),
        _gib(line["predicted_peak"]),
        _percent(line["peak_error"]),
        line["phase_of_peak"],
        _gib(line["states"]),
        _percent(line["states_error"]),
        _gib(line["measured_above_states"]),
        _gib(line["predicted_above_states"]),
        _gib(line["measured_at_rest"]),
        _gib(line["predicted_at_rest"]),
        _percent(line["at_rest_error"]),
        _gib(line["stock_peak"]),
        line["stock_phase_of_peak"],
    ]


def _differences(lines: list[Row]) -> str:
    told: dict[str, list[str]] = {}
    for line in lines:
        for text in line["differences"]:
            told.setdefault(text, []).append(line["id"].rpartition("-")[2])
    return "".join(f"- {text} ({', '.join(ids)})\n" for text, ids in told.items())


def _reasons(lines: list[Row]) -> str:
    told: dict[str, list[str]] = {}
    for line in lines:
        told.setdefault(line["reason"], []).append(line["id"])
    return "".join(f"- {reason}: {', '.join(ids)}\n" for reason, ids in told.items())


def _gib(size: int) -> str:
    return f"{size / GIB:.4f}"


def _percent(ratio: float) -> str:
    return f"{100 * ratio:+.4f} %"
