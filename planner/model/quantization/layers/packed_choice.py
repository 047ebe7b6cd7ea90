"""Which library's kernel multiplies packed integers."""

from gpu_plan.planner.model.quantization.layers.packed_int import (
    MARLIN_GROUPS,
    AwqGemmMeta,
    MarlinMeta,
    PackedLinear,
    TorchGptqMeta,
    TritonMeta,
)
from gpu_plan.planner.model.quantization.layers.packed_older import AutoAwqMeta, CudaOldMeta, ExllamaMeta
from gpu_plan.planner.model.quantization.scheme import Method, Runtime, Scheme, Target


def packed_class(scheme: Scheme, target: Target, *, training: bool) -> type[PackedLinear]:
    """The class that GPTQModel's order of preference picks for a whole model.

    utils/importer.py: select_quant_linear by SUPPORTS_FORMATS' priorities; on Hopper Machete stands before Marlin, a
    fused kernel as well. Nothing that is fused trains (SUPPORTS_TRAINING).
    """
    if scheme.runtime is Runtime.AUTOGPTQ:
        return ExllamaMeta if scheme.bits == 4 else CudaOldMeta
    if scheme.runtime is Runtime.AUTOAWQ:
        return AutoAwqMeta
    fused = not training and scheme.group_size in MARLIN_GROUPS and scheme.bits in (4, 8)
    if scheme.method is Method.AWQ:
        return MarlinMeta if fused and target.reaches((8, 0)) else AwqGemmMeta
    if fused and scheme.symmetric and target.reaches((7, 5)):
        return MarlinMeta
    return TritonMeta if scheme.bits in (2, 4, 8) and not training else TorchGptqMeta
