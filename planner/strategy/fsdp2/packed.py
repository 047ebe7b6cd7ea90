"""4-bit weights under FSDP2: whole on every rank while they are stored as integers, sharded like others as floats.

accelerate 1.15 utils/fsdp_utils.py: fsdp2_prepare_model ignores Params4bit whose storage is no floating type, as
BitsAndBytesConfig has it by default; `bnb_4bit_quant_storage` names a type in which the same bytes are stored, gathered
and never converted. The scales (QuantState) are plain tensors of every rank either way.
"""

from dataclasses import replace

from gpu_plan.planner.dtypes import element_bits, is_floating
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.host_memory import packed_bytes
from gpu_plan.planner.trace.events import ParameterInfo, StepTrace
from gpu_plan.planner.trace.remembered import of_trace
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.units import ceil_div, format_bytes


def packed_dtype(context: RankContext) -> str:
    """bnb_4bit_quant_storage: as `--set quant.storage` says, else the type of the computation, as recipes have it."""
    return context.setting("quant.storage", context.precision.compute_dtype)


def stored_as_floats(context: RankContext) -> RankContext:
    """The same rank, whose packed weights are parameters of their storage's type where that is a floating one."""
    dtype = packed_dtype(context)
    if not context.peft.quantises or not is_floating(dtype):
        return context
    return replace(context, trace=_as_floats(context.trace, dtype))


@of_trace
def _as_floats(trace: StepTrace, dtype: str) -> StepTrace:
    return replace(trace, parameters=[_stored(parameter, dtype) for parameter in trace.parameters])


def _stored(parameter: ParameterInfo, dtype: str) -> ParameterInfo:
    if is_floating(parameter.dtype):
        return parameter
    elements = ceil_div(parameter.numel * element_bits(parameter.dtype), element_bits(dtype))
    return replace(parameter, dtype=dtype, shape=(elements, 1))


def packed_notes(context: RankContext, regime: Regime) -> tuple[str, ...]:
    """How the base has to be loaded for that."""
    if not context.peft.quantises:
        return ()
    whole = format_bytes(packed_bytes(context.trace.parameters, regime))
    loading = (
        f"while loading every rank packs the whole model, {whole} and scales, on its device, unless it is loaded with"
        " device_map='cpu' (then in RAM)"
    )
    if not is_floating(packed_dtype(context)):
        return (loading,)
    return (
        loading,
        f"with QLoRA the base is loaded with bnb_4bit_quant_storage=torch.{packed_dtype(context)}, or every rank keeps"
        " it whole; the scales stay whole, and quantised twice (--set quant.double=true) they take a quarter",
    )
