"""MXFP4 experts as vLLM's kernels hold them: sizes rounded up, by the device that runs them.

vLLM 0.33.0: model_executor/layers/fused_moe/oracle/mxfp4.py (_get_priority_backends_for_gpt_oss,
mxfp4_round_up_hidden_size_and_intermediate_size), model_executor/layers/quantization/mxfp4.py (create_weights),
fused_moe/experts/gpt_oss_triton_kernels_moe.py (_triton_kernel_moe_supports_current_device).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.model.spec import ModelSpec, ParameterSpec
from gpu_plan.planner.serving.weights import Held
from gpu_plan.planner.units import ceil_div, round_up

_VALUES, _SCALED = 2, 32
"""FP4 values of a byte, and those that share a byte of scale."""
_TRITON, _TENSORRT, _CONSUMER = 9, 10, 12
"""Major compute capabilities: Hopper's kernels are Triton's, Blackwell's TensorRT-LLM's, and Marlin's elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertRounding:
    """What a kernel asks of the sizes of experts."""

    hidden: int
    intermediate: int
    """Of one rank's share."""
    bias_bytes: int

    def nbytes(self, parameter: ParameterSpec, config: Mapping[str, Any], ranks: int) -> int | None:
        """Of one rank's part of a packed expert's parameter; None for any other parameter."""
        name = parameter.name.rpartition(".")[2]
        part, _, what = name.partition("_proj")
        hidden, inner = config.get("hidden_size"), config.get("intermediate_size")
        known = ".experts." in parameter.name and part in ("gate_up", "down") and what in ("", "_scales", "_bias")
        if not known or not isinstance(hidden, int) or not isinstance(inner, int):
            return None
        wide, narrow = round_up(hidden, self.hidden), round_up(ceil_div(inner, ranks), self.intermediate)
        rows, columns = (2 * narrow, wide) if part == "gate_up" else (wide, narrow)
        each = {"": rows * columns // _VALUES, "_scales": rows * columns // _SCALED, "_bias": rows * self.bias_bytes}
        return parameter.shape[0] * each[what]


def held_on(gpu: Gpu, spec: ModelSpec, config: Mapping[str, Any], ranks: int) -> Held:
    """Bytes of a model's packed experts on one rank, where it has any."""
    if not any(one.name.endswith(".experts.down_proj_scales") and one.dtype == "uint8" for one in spec.parameters):
        return lambda _: None
    rounding = _rounding(gpu)
    return lambda parameter: rounding.nbytes(parameter, config, ranks)


def _rounding(gpu: Gpu) -> ExpertRounding:
    """By the first kernel of vLLM's order that the device has."""
    major = 0 if gpu.compute_capability is None else gpu.compute_capability[0]
    if major == _TRITON:
        return ExpertRounding(hidden=1, intermediate=64, bias_bytes=4)
    return ExpertRounding(hidden=256, intermediate=128, bias_bytes=4 if _TENSORRT <= major < _CONSUMER else 2)
