"""Where the difference of a measured case lies, part by part; bytes, positive where the estimate is high."""

from typing import Any

_SHARE = 0.002
"""Of the measured peak: parts that differ by less are not named."""
_LEAST = 4 << 10


def causes(line: dict[str, Any], row: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts that differ, the largest first: `{"part", "bytes", "look"}`.

    What stands between steps is told apart by what the measured process counted of itself; a phase by what it takes
    above that; the allocator by reserved beside allocated; the process by what it holds outside.
    """
    found = [*_standing(line, row), *_phases(line), *_around(line)]
    least = max(_LEAST, _SHARE * (line.get("measured_peak") or 0))
    named = [part for part in found if abs(part["bytes"]) > least]
    return sorted(named, key=lambda part: -abs(part["bytes"]))


def told(line: dict[str, Any], row: dict[str, Any]) -> str:
    """The causes in a few words."""
    parts = causes(line, row)
    return "; ".join(f"{part['part']} {part['bytes'] / 2**20:+,.2f} MiB ({part['look']})" for part in parts[:3])


def _part(part: str, size: float, look: str) -> dict[str, Any]:
    return {"part": part, "bytes": round(size), "look": look}


def _standing(line: dict[str, Any], row: dict[str, Any]) -> list[dict[str, Any]]:
    ours = line.get("predicted_standing") or {}
    looks = {
        "parameters": ("parameter_bytes", "types of weights, tied or packed ones"),
        "buffers": ("buffer_bytes", "buffers that the model registers"),
        "optimizer_state": ("state_bytes", "what the optimizer keeps and in which type"),
    }
    found, known = [], 0.0
    for part, (name, look) in looks.items():
        if part in ours and isinstance(row.get(name), int):
            known += ours[part] - row[name]
            found.append(_part(part.replace("_", " "), ours[part] - row[name], look))
    measured = line.get("measured_at_rest")
    if measured is not None:
        rest = line["predicted_at_rest"] - measured - known
        found.append(_part("else at rest", rest, "what the loop's variables hold, workspaces, rounding of blocks"))
    return found


def _phases(line: dict[str, Any]) -> list[dict[str, Any]]:
    looks = {
        "forward": "saved activations, the loss and its logits",
        "backward": "temporaries of kernels, recomputation, gradients",
        "step": "the optimizer's lists, clipping",
    }
    measured = line.get("measured_at_rest")
    found = []
    for name, phase in (line.get("phases") or {}).items():
        if measured is not None and phase["measured"] is not None:
            above = (phase["predicted"] - line["predicted_at_rest"]) - (phase["measured"] - measured)
            found.append(_part(f"{name} above rest", above, looks[name]))
    return found


def _around(line: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    if line.get("measured_reserved") and line.get("measured_peak"):
        ours = line["predicted_reserved"] - line["predicted_peak"]
        theirs = line["measured_reserved"] - line["measured_peak"]
        found.append(_part("cached beside the peak", ours - theirs, "order and sizes of blocks, streams"))
    outside, bounds = line.get("measured_outside"), line["predicted_outside"]
    if outside is not None and not bounds["low"] <= outside <= bounds["high"]:
        nearest = bounds["low"] if outside < bounds["low"] else bounds["high"]
        found.append(_part("outside the allocator", nearest - outside, "CUDA context, modules, libraries"))
    return found


_OF_THE_CPU = (
    (
        lambda case: "8bit" in case["optimizer"],
        "bitsandbytes steps 8-bit states on a CPU as whole tensors in fp32 (backends/cpu/ops.py: "
        "_optimizer_update_8bit_blockwise_cpu), where one CUDA kernel steps them in place",
    ),
    (
        lambda case: case["precision"] == "fp16-mixed" and case["stack"] != "plain",
        "accelerate has no fp16 on a CPU: the step runs in fp32 (accelerator.py: Accelerator.__init__, `native_amp`)",
    ),
    (
        lambda case: (
            case["precision"] == "bf16-mixed" and any(word in case["model"] for word in ("t5", "gpt2", "bert"))
        ),
        "a CPU's autocast leaves `pow` (gelu_new) and layer norms in 16 bits, CUDA's takes them to fp32, as planned "
        "(pytorch aten/src/ATen/autocast_mode.cpp)",
    ),
    (
        lambda case: case["peft"] == "qlora" and case["precision"] == "bf16-mixed",
        "peft asks whether CUDA's autocast is on (tuners/lora/bnb.py: Linear4bit.forward, torch.is_autocast_enabled): "
        "on a CPU the attention's 16-bit output is cast to the adapters' fp32 and back, one more copy a layer that "
        "autograd keeps; and scales of NF4 weights, made before the profile begins, are in no figure of a CPU",
    ),
    (
        lambda case: case["checkpointing"] == "full",
        "each checkpoint keeps the state of the CPU's generator, 5,056 bytes, and a recomputation more of them "
        "(torch/utils/checkpoint.py: _checkpoint_without_reentrant_generator), which a GPU's run has in host memory",
    ),
)
"""By rule from the case: what a CPU does otherwise than a GPU."""


def of_the_cpu(lines: list[dict[str, Any]]) -> list[str]:
    """What a CPU does otherwise in cases that differ, each with their number; those that nothing explains are named."""
    apart = [line["case"] for line in lines if line.get("causes")]
    counted = [(sum(map(holds, apart)), text) for holds, text in _OF_THE_CPU]
    left = [case["id"] for case in apart if not any(holds(case) for holds, _ in _OF_THE_CPU)]
    told = [f"{text}: {count} cases" for count, text in counted if count]
    return [*told, *([f"not explained by these: {', '.join(left)}"] if left else [])]
