"""What one device takes to compute a step: rates of its operators, and their seconds in each phase."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.plain.among import among
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.speed.attention import USUAL_HEAD, Direction, attention_share, waited_flops
from gpu_plan.planner.speed.calibration.rates import (
    Sizes,
    attention_rate,
    memory_rate_here,
    operator_seconds_here,
    product_rate,
)
from gpu_plan.planner.speed.calibration.record import Calibration
from gpu_plan.planner.speed.chips.power import limited
from gpu_plan.planner.speed.chips.slowest import slowest_device, waiting_devices
from gpu_plan.planner.speed.host import Issuing, allocation_share, host_operator_seconds, view_share
from gpu_plan.planner.speed.model import Collective, Kernel, Layers, StepWork
from gpu_plan.planner.speed.operators import (
    BACKWARD,
    FORWARD,
    NUM_CLASSES,
    NUM_PHASES,
    RECOMPUTE,
    OperatorClass,
    Operators,
)
from gpu_plan.planner.speed.rates import (
    Rate,
    accumulating_share,
    beside_each_other,
    kernel_overhead_seconds,
    matmul_share,
    memory_rate,
    misaligned_share,
    published_peak,
    streaming_rate,
    strided_rate,
    usable_peak,
)
from gpu_plan.planner.trace.events import FloatArray, StepTrace

SLOW, EXPECTED, FAST = range(3)

_FUSED: dict[OperatorClass, tuple[Kernel, Direction]] = {
    OperatorClass.FLASH_FORWARD: ("flash", "forward"),
    OperatorClass.FLASH_BACKWARD: ("flash", "backward"),
    OperatorClass.CUDNN_FORWARD: ("cudnn", "forward"),
    OperatorClass.CUDNN_BACKWARD: ("cudnn", "backward"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDevice:
    """Rates of one device for one step: FLOP/s by `Operators.rate` (rows slow, expected, fast), and the rest."""

    flops: FloatArray
    memory: Rate
    pipelined: bool
    """Whether products load operands while they compute: on an accelerator whose tables are of large ones."""
    gap: tuple[float, float, float]
    """Seconds between two operators on the device: slow, expected, fast."""
    issue: Rate
    """Seconds that the host needs to issue one, beside the device."""
    used: tuple[Rate, ...]
    sizes: Sizes | None = None
    """How products of this machine's own grow with their size."""
    weights: Rate | None = None
    """Bytes per second of products that wait for their operands; None: as other traffic."""
    strided: Rate | None = None
    """Elements per second of copies that compute an address for each; None: as fast as others."""
    narrowed: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Rate of products in the step's own type over that of fp32 matrices beside them: slow, expected, fast."""
    waited: FloatArray | None = None
    """FLOPs by `Operators.rate` for which a call waits beside its own (rows slow, expected, fast); None: for none."""

    def arithmetic(self, operators: Operators, micro_batch: int, bound: int) -> FloatArray:
        """Seconds of arithmetic of one call of each operator."""
        flops = operators.flops(micro_batch)
        if self.waited is not None:
            flops = flops + np.where(flops > 0, self.waited[bound, operators.rate], 0.0)
        return np.asarray(flops / self.flops[bound, operators.rate], dtype=np.float64)


def slowest_of(work: StepWork, cluster: Cluster, operators: Operators, device: StepDevice) -> StepDevice:
    """The device that those which work together wait for; itself where its own rates were measured."""
    if device.sizes is not None:
        return device
    time = slowest_device(cluster.gpu, waiting_devices(work, cluster.world_size, operators))
    return replace(device, flops=device.flops / np.array(time.bounds)[:, None], used=(*device.used, time))


def device_of(
    work: StepWork, cluster: Cluster, operators: Operators, here: Calibration | None, reentrant: bool
) -> StepDevice:
    """A device like others of its kind, or the one that was measured."""
    if here is not None:
        measured = _measured_device(work, cluster, operators, here)
        if measured is not None:
            return measured
    gpu = cluster.gpu
    sharing = 1 / cluster.gpus_per_node if gpu.is_cpu else 1.0
    peak = usable_peak(gpu, work.compute_dtype).times(sharing)
    memory = memory_rate(gpu).times(sharing)
    needed = set(operators.rate.tolist())
    shares: list[tuple[int, Rate]] = [(OperatorClass.MATMUL, matmul_share(gpu, work.compute_dtype))]
    shares += [
        (int(fused), _fused_share(work, gpu, fused, work.causal_attention, None)) for fused in _FUSED if fused in needed
    ]
    shares += [
        (NUM_CLASSES + index, _fused_share(work, gpu, kind.operator_class, kind.causal, kind.head_dim))
        for index, kind in enumerate(operators.attention)
    ]
    flops = np.full((3, NUM_CLASSES + len(operators.attention)), np.inf)
    shares = [(index, limited(share, gpu, work.power_limit_watts)) for index, share in shares]
    for index, share in shares:
        flops[:, index] = np.array(share.bounds) * np.array(peak.bounds)
    taken = [share for index, share in shares if index in needed]
    used = [peak, memory] if taken else [memory]
    if operators.uses(OperatorClass.FLOAT8):
        float8, share8 = usable_peak(gpu, "float8").times(sharing), matmul_share(gpu, "float8")
        share8 = limited(share8, gpu, work.power_limit_watts)
        flops[:, OperatorClass.FLOAT8] = np.array(share8.bounds) * np.array(float8.bounds)
        used += [float8, share8]
    used += taken
    gap = kernel_overhead_seconds()
    return StepDevice(
        flops=flops,
        memory=memory,
        pipelined=not gpu.is_cpu,
        gap=(gap, gap, gap),
        issue=host_operator_seconds(gpu, _issuing(operators, reentrant, work.layers)),
        used=tuple(used),
        weights=streaming_rate(gpu),
        strided=strided_rate(gpu),
        narrowed=_narrowed(work, gpu),
        waited=_waited(work, gpu, operators),
    )


def _narrowed(work: StepWork, gpu: Gpu) -> tuple[float, float, float]:
    """fp32 matrices go without tensor cores or as TF32, as NVIDIA's containers have it and torch by itself does not
    (torch.backends.cuda.matmul.allow_tf32): slow and expected; fast is a script whose autocast narrows them."""

    def over(dtype: str) -> float:
        own, other = published_peak(gpu, work.compute_dtype), published_peak(gpu, dtype)
        return max(1.0, own / other) if own and other else 1.0

    return over("float32"), over("tf32"), 1.0


def _waited(work: StepWork, gpu: Gpu, operators: Operators) -> FloatArray | None:
    """FLOPs that each kind of attention of the trace waits for; None where a rank has few of a sample's queries: one
    token at a time, or a ring's share."""
    if not work.causal_attention or work.attention_share != 1.0 or not operators.attention:
        return None
    found = np.zeros((3, NUM_CLASSES + len(operators.attention)))
    for index, kind in enumerate(operators.attention):
        kernel, direction = _FUSED[kind.operator_class]
        found[:, NUM_CLASSES + index] = waited_flops(
            gpu,
            kernel=work.attention_kernel or _kernel_of(work.trace) or kernel,
            direction=direction,
            causal=kind.causal,
            seq_len=work.trace.tokens_per_sample,
            head_dim=kind.head_dim or USUAL_HEAD,
        )
    return found


_RECORDING: dict[Layers, tuple[Issuing, Issuing]] = {
    "torch": (Issuing.RECORDING, Issuing.CHECKPOINTED),
    "megatron-core": (Issuing.CORE, Issuing.CORE_CHECKPOINTED),
    "megatron-deepspeed": (Issuing.DEEPSPEED, Issuing.DEEPSPEED_CHECKPOINTED),
}
"""What the host does beside issuing a step's operators, without checkpoints and with them."""


def _issuing(operators: Operators, reentrant: bool, layers: Layers) -> Issuing:
    recording, checkpointed = _RECORDING[layers]
    if (operators.phase == RECOMPUTE).any():
        return Issuing.REENTRANT if reentrant else checkpointed
    return recording if (operators.phase == BACKWARD).any() else Issuing.NO_GRAD


def _measured_device(work: StepWork, cluster: Cluster, operators: Operators, here: Calibration) -> StepDevice | None:
    """The device by what was measured on it; None where products of this type were not."""
    found = product_rate(here, work.compute_dtype)
    if found is None or operators.uses(OperatorClass.FLOAT8):
        return None
    # Processes of one machine share its processors; devices are each their own.
    sharing = 1 / cluster.gpus_per_node if cluster.gpu.is_cpu else 1.0
    products, sizes = found
    products, memory = products.times(sharing), memory_rate_here(here).times(sharing)
    flops = np.full((3, NUM_CLASSES + len(operators.attention)), np.inf)
    flops[:, OperatorClass.MATMUL] = products.bounds
    used = [products, memory]
    kinds = [(int(fused), fused, work.causal_attention) for fused in _FUSED]
    kinds += [
        (NUM_CLASSES + index, kind.operator_class, kind.causal and work.causal_attention)
        for index, kind in enumerate(operators.attention)
    ]
    for index, fused, skips in kinds:
        rate = (attention_rate(here, work.compute_dtype, _FUSED[fused][1]) or products).times(sharing)
        flops[:, index] = rate.times(2.0 if skips else 1.0).bounds
        if (operators.rate == index).any():
            used.append(rate)
    operator = operator_seconds_here(here)
    # A processor computes what it is told before it is told more; a GPU computes beside the host.
    at_once = cluster.gpu.is_cpu
    return StepDevice(
        flops=flops,
        memory=memory,
        pipelined=False,
        gap=operator.bounds if at_once else (kernel_overhead_seconds(),) * 3,
        issue=Rate(slow=0.0, expected=0.0, fast=0.0, basis="measured", note="") if at_once else operator,
        used=tuple(used),
        sizes=sizes,
    )


def _kernel_of(trace: StepTrace) -> Kernel | None:
    """A version that the class itself chose, by the name of its operator."""
    return "flash3" if any(name.startswith("flash3_") for name in trace.operator_names) else None


def _fused_share(work: StepWork, gpu: Gpu, fused: OperatorClass, causal: bool, head_dim: int | None) -> Rate:
    """A causal kernel does half the FLOPs that are counted."""
    kernel, direction = _FUSED[fused]
    skips = causal and work.causal_attention
    share = attention_share(
        gpu,
        kernel=work.attention_kernel or _kernel_of(work.trace) or kernel,
        direction=direction,
        causal=skips,
        seq_len=work.trace.tokens_per_sample,
        head_dim=head_dim or USUAL_HEAD,
    )
    return share.times(2.0 if skips else 1.0)


def attention_block(operators: Operators, micro_batch: int, device: StepDevice, bound: int) -> FloatArray:
    """Mean seconds of a fused attention operator in each phase, (3,); 0 where there is none."""
    attends = operators.is_attention
    each = np.where(attends, device.arithmetic(operators, micro_batch, bound), 0.0)
    counts = np.bincount(operators.phase, weights=attends * operators.count, minlength=NUM_PHASES)
    return np.asarray(_by_phase(operators, each) / np.maximum(counts, 1.0), dtype=np.float64)


def _on_device(operators: Operators, micro_batch: int, device: StepDevice, bound: int) -> FloatArray:
    """Seconds of each phase if the host never lags, (3,)."""
    return _by_phase(operators, seconds_of_each(operators, micro_batch, device, bound))


def seconds_of_each(operators: Operators, micro_batch: int, device: StepDevice, bound: int) -> FloatArray:
    """Seconds that the device takes for one call of each operator."""
    flops, moved = operators.flops(micro_batch), operators.bytes(micro_batch)
    arithmetic = device.arithmetic(operators, micro_batch, bound)
    if device.sizes is not None:
        products = operators.operator_class == OperatorClass.MATMUL
        arithmetic[products] /= device.sizes.at(flops[products])
    if device.pipelined:
        arithmetic[operators.accumulates] /= accumulating_share().bounds[bound]
        arithmetic[operators.misaligned] /= misaligned_share().bounds[bound]
        arithmetic[operators.wide] *= device.narrowed[bound]
    traffic = moved / device.memory.bounds[bound]
    if device.weights is not None:
        products = _products(operators)
        traffic[products] = moved[products] / device.weights.bounds[bound]
    if device.strided is not None:
        traffic = np.maximum(traffic, moved / operators.item_bytes / device.strided.bounds[bound])
    each = np.maximum(arithmetic, traffic)
    if bound != FAST and device.pipelined:
        products = _products(operators)
        each[products] = beside_each_other(
            arithmetic[products], traffic[products], operators.grouped[products], slow=bound == SLOW
        )
    each += np.where((flops > 0) | (moved > 0), device.gap[bound], 0.0)  # what moves nothing is no kernel
    return np.asarray(each, dtype=np.float64)


def _products(operators: Operators) -> NDArray[np.bool_]:
    return among(operators.operator_class, (OperatorClass.MATMUL, OperatorClass.FLOAT8))


def _issued(operators: Operators, bound: int) -> FloatArray:
    """Operators of each phase, (3,): what only finds memory counts as a part of one."""
    return _by_phase(operators, np.where(operators.allocates, allocation_share()[bound], 1.0))


def hooked_seconds(work: StepWork, collectives: list[Collective]) -> FloatArray:
    """Operators that hooks issue in each phase of one micro step: slow, expected and fast, (3, 3); what changes shapes
    counts as the part of one that it takes."""
    found = np.zeros((3, NUM_PHASES))
    for one in collectives:
        if one.phase == "step" or not one.issued[1]:
            continue
        fewest, most = one.issued
        # What comes once in a step is spread over its micro steps.
        calls = one.count / (work.accumulation_steps if one.per == "step" else 1)
        phase = FORWARD if one.phase == "forward" else BACKWARD
        found[:, phase] += (fewest + np.array(view_share()) * (most - fewest)) * calls
    return found


def _by_phase(operators: Operators, each: FloatArray) -> FloatArray:
    summed = np.bincount(operators.phase, weights=each * operators.count, minlength=NUM_PHASES)
    return summed.astype(np.float64)


def compute(
    operators: Operators,
    micro_batch: int,
    device: StepDevice,
    hooked: FloatArray,
    bound: int,
    *,
    blocking: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """Seconds of forward, backward and recomputation in one micro step, (3,), and those among them in which the device
    has nothing to do, its host being slower. `blocking`: it stands idle while the host issues, and waits for nothing
    else then."""
    issued = (_issued(operators, bound) + hooked[bound]) * device.issue.bounds[bound]
    on_device = _on_device(operators, micro_batch, device, bound)
    if blocking:
        return on_device + issued, np.zeros(NUM_PHASES)
    seconds = np.maximum(on_device, issued)
    return seconds, seconds - on_device


def streams_weights(operators: Operators, micro_batch: int, device: StepDevice) -> bool:
    """Whether products wait for their operands during most of their time."""
    if device.weights is None:
        return False
    flops, moved = operators.flops(micro_batch), operators.bytes(micro_batch)
    products = _products(operators)
    arithmetic = flops / device.flops[EXPECTED, operators.rate]
    traffic = moved / device.weights.expected
    waited = products & (traffic > arithmetic)
    each = np.maximum(arithmetic, traffic) * operators.count
    return bool(2 * each[waited].sum() > each[products].sum())


def waits_for_host(operators: Operators, micro_batch: int, device: StepDevice, hooked: FloatArray) -> bool:
    on_device = _on_device(operators, micro_batch, device, EXPECTED)
    issued = _issued(operators, EXPECTED) + hooked[EXPECTED]
    return bool((issued * device.issue.expected > on_device).any())
