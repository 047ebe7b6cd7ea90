"""The analytic speed model: every operator against the roofline, every transfer against its wire."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.speed.attention import USUAL_HEAD, Direction, attention_share
from gpu_plan.planner.speed.calibration.rates import (
    Sizes,
    attention_rate,
    memory_rate_here,
    operator_seconds_here,
    product_rate,
)
from gpu_plan.planner.speed.calibration.record import Calibration
from gpu_plan.planner.speed.collectives import call_seconds
from gpu_plan.planner.speed.host import Issuing, host_operator_seconds
from gpu_plan.planner.speed.model import HOST_KINDS, AxisTime, Collective, Kernel, Per, Phase, StepTime, StepWork
from gpu_plan.planner.speed.operators import (
    BACKWARD,
    FORWARD,
    NUM_CLASSES,
    NUM_PHASES,
    RECOMPUTE,
    OperatorCache,
    OperatorClass,
    Operators,
)
from gpu_plan.planner.speed.power import limited
from gpu_plan.planner.speed.rates import (
    Rate,
    collective_sm_share,
    host_memory_rate,
    intensity_share,
    kernel_overhead_seconds,
    matmul_share,
    memory_rate,
    published_peak,
    strided_rate,
    usable_peak,
    worst_basis,
)
from gpu_plan.planner.speed.streams.degrees import axis_times
from gpu_plan.planner.speed.streams.gantt import chrome_trace, step_spans
from gpu_plan.planner.speed.streams.overlap import Beside, PhaseWork, Transfer, exposed_seconds, phase_work, together
from gpu_plan.planner.speed.streams.scaling import scaling_words
from gpu_plan.planner.trace.events import FloatArray, StepTrace

SLOW, EXPECTED, FAST = range(3)
_EVERY: tuple[Per, ...] = ("micro_step",)
_LAST: tuple[Per, ...] = ("micro_step", "step")
"""What is sent in every micro step, and in the last one."""

_SHORTEST = 1e-9
"""Seconds that a step takes at least, so that a trace without operators has a rate too."""

_FUSED: dict[OperatorClass, tuple[Kernel, Direction]] = {
    OperatorClass.FLASH_FORWARD: ("flash", "forward"),
    OperatorClass.FLASH_BACKWARD: ("flash", "backward"),
    OperatorClass.CUDNN_FORWARD: ("cudnn", "forward"),
    OperatorClass.CUDNN_BACKWARD: ("cudnn", "backward"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Device:
    """Rates of one device for one step: FLOP/s by `Operators.rate` (rows slow, expected, fast), and the rest."""

    flops: FloatArray
    memory: Rate
    halves: bool
    """Whether products run in 16 bits on an accelerator, for which rates by intensity were published."""
    gap: tuple[float, float, float]
    """Seconds between two operators on the device: slow, expected, fast."""
    issue: Rate
    """Seconds that the host needs to issue one, beside the device."""
    used: tuple[Rate, ...]
    sizes: Sizes | None = None
    """How products of this machine's own grow with their size."""
    strided: Rate | None = None
    """Elements per second of copies that compute an address for each; None: as fast as others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Seconds of one optimizer step under one of the three bounds."""

    forward: float
    backward: float
    recompute: float
    optimizer: float
    communication: float
    host_transfer: float
    exposed: float

    @property
    def total(self) -> float:
        return self.forward + self.backward + self.recompute + self.optimizer + self.exposed


class RooflineModel:
    """A `SpeedModel` from published rates of hardware; nothing in it was fitted to training runs.

    `here`: what was measured on the machine that is planned for, in place of what was published.

    An operator takes the longer of its arithmetic and its memory traffic, plus the gap between kernels; a phase
    takes at least what the host needs to issue its operators. Transfers flagged as overlapping hide behind the
    computation of their phase as far as `overlap.py` says, those to the host and those to other devices
    beside each other.
    """

    name = "roofline"

    def __init__(self, here: Calibration | None = None, *, reentrant: bool = False) -> None:
        """`reentrant`: what is computed again stands under reentrant checkpoints, transformers' default before 5."""
        self._operators = OperatorCache()
        self._here = here
        self._reentrant = reentrant

    def step_time(self, work: StepWork, cluster: Cluster) -> StepTime:
        """Time of one optimizer step. A step costs microseconds once its trace has been seen."""
        operators = self._operators.of(work.trace)
        here = self._here
        device = _device(work, cluster, operators, here, self._reentrant)
        optimizer = _optimizer_rate(work, cluster, device)
        collectives = together(work.collectives)
        hooked = _hooked(work, collectives)
        calls = [(collective, call_seconds(collective, cluster, here)) for collective in collectives]
        blocks = [_attention_block(operators, work.micro_batch, device, bound) for bound in (SLOW, EXPECTED, FAST)]
        transfers = [
            Transfer(
                collective=collective,
                seconds=(
                    call.slow * collective.count,
                    call.expected * collective.count,
                    call.fast * collective.count,
                ),
                hidden=_hidden(collective, (call.slow, call.expected, call.fast), blocks),
            )
            for collective, call in calls
        ]
        taken = collective_sm_share(cluster.gpu)

        @cache
        def compute(bound: int) -> FloatArray:
            return _compute(operators, work.micro_batch, device, hooked, bound)

        by_host = work.optimizer.on_host or not all(transfer.in_device for transfer in transfers)

        @cache
        def parts_of(on_device: int, links: int, host: int) -> _Parts:
            stepped = host if work.optimizer.on_host else on_device
            return _parts(
                work,
                compute=compute(on_device),
                optimizer=work.optimizer.parameter_bytes_read_written / optimizer.bounds[stepped],
                transfers=_at_bounds(transfers, links, host),
                beside=Beside(
                    bound=links,
                    memory_rate=device.memory.bounds[on_device],
                    compute_share=taken.bounds[on_device],
                ),
            )

        def parts_at(on_device: int, links: int, host: int) -> _Parts:
            # Where nothing passes the host, its bound is no other.
            return parts_of(on_device, links, host if by_host else links)

        @cache
        def corners() -> tuple[float, ...]:
            ends = product((SLOW, FAST), repeat=3)
            return tuple(max(parts_at(*bounds).total, _SHORTEST) for bounds in ends)

        def ends() -> tuple[float, float]:
            slow, fast = parts_of(SLOW, SLOW, SLOW).total, parts_of(FAST, FAST, FAST).total
            return min(max(fast, _SHORTEST), time.step_seconds), max(slow, time.step_seconds)

        parts = parts_of(EXPECTED, EXPECTED, EXPECTED)
        used = [*device.used, *([optimizer] if work.optimizer.parameter_bytes_read_written else [])]
        used += [call for _, call in calls if call.expected > 0]
        host_bound = _waits_for_host(operators, work.micro_batch, device, hooked)
        time = _step_time(work, cluster, operators, parts, ends, [*used, device.issue] if host_bound else used)

        def trace(title: str) -> dict[str, Any]:
            beside = Beside(bound=EXPECTED, memory_rate=device.memory.expected, compute_share=taken.bounds[EXPECTED])
            phases = _scheduled(work, compute(EXPECTED), parts.optimizer, transfers, beside)
            return chrome_trace(list(step_spans(phases)), title)

        def scaling() -> str | None:
            ranks = work.data_parallel or cluster.world_size
            return scaling_words(time, work, ranks, cluster.world_size // ranks)

        def degrees() -> tuple[AxisTime, ...]:
            beside = Beside(bound=EXPECTED, memory_rate=device.memory.expected, compute_share=taken.bounds[EXPECTED])

            def exposed(some: list[Transfer]) -> float:
                own = parts.optimizer
                return _parts(work, compute=compute(EXPECTED), optimizer=own, transfers=some, beside=beside).exposed

            return axis_times(work, transfers, EXPECTED, exposed)

        return replace(time, corners=corners, scaling=scaling, trace=trace, degrees=degrees)


# -- computation -------------------------------------------------------------------------------------------


def _device(
    work: StepWork, cluster: Cluster, operators: Operators, here: Calibration | None, reentrant: bool
) -> _Device:
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
    halves = work.compute_dtype in ("bfloat16", "float16") and not gpu.is_cpu
    gap = kernel_overhead_seconds()
    return _Device(
        flops=flops,
        memory=memory,
        halves=halves,
        gap=(gap, gap, gap),
        issue=host_operator_seconds(gpu, _issuing(operators, reentrant)),
        used=tuple(used),
        strided=strided_rate(gpu),
    )


def _issuing(operators: Operators, reentrant: bool) -> Issuing:
    if (operators.phase == RECOMPUTE).any():
        return Issuing.REENTRANT if reentrant else Issuing.CHECKPOINTED
    return Issuing.RECORDING if (operators.phase == BACKWARD).any() else Issuing.NO_GRAD


def _measured_device(work: StepWork, cluster: Cluster, operators: Operators, here: Calibration) -> _Device | None:
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
    return _Device(
        flops=flops,
        memory=memory,
        halves=False,
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


def _attention_block(operators: Operators, micro_batch: int, device: _Device, bound: int) -> FloatArray:
    """Mean seconds of a fused attention operator in each phase, (3,); 0 where there is none."""
    among = operators.is_attention
    each = np.where(among, operators.flops(micro_batch) / device.flops[bound, operators.rate], 0.0)
    counts = np.bincount(operators.phase, weights=among * operators.count, minlength=NUM_PHASES)
    return np.asarray(_by_phase(operators, each) / np.maximum(counts, 1.0), dtype=np.float64)


def _hidden(
    collective: Collective, calls: tuple[float, float, float], blocks: list[FloatArray]
) -> tuple[float, float, float]:
    """Seconds of all calls during which blocks of attention are computed, slow, expected, fast."""
    phase, beside = collective.beside
    if not beside:
        return 0.0, 0.0, 0.0
    slow, expected, fast = (
        min(call, beside * float(block[phase])) * collective.count for call, block in zip(calls, blocks, strict=True)
    )
    return slow, expected, fast


def _on_device(operators: Operators, micro_batch: int, device: _Device, bound: int) -> FloatArray:
    """Seconds of each phase if the host never lags, (3,)."""
    flops, moved = operators.flops(micro_batch), operators.bytes(micro_batch)
    arithmetic = flops / device.flops[bound, operators.rate]
    if bound != FAST and device.halves:
        products = operators.operator_class == OperatorClass.MATMUL
        arithmetic[products] /= intensity_share(flops[products] / np.maximum(moved[products], 1.0))
    if device.sizes is not None:
        products = operators.operator_class == OperatorClass.MATMUL
        arithmetic[products] /= device.sizes.at(flops[products])
    traffic = moved / device.memory.bounds[bound]
    if device.strided is not None:
        traffic = np.maximum(traffic, moved / operators.item_bytes / device.strided.bounds[bound])
    each = np.maximum(arithmetic, traffic) + device.gap[bound]
    return _by_phase(operators, each)


def _issued(operators: Operators) -> FloatArray:
    """Operators of each phase, (3,)."""
    return _by_phase(operators, np.ones(len(operators.phase)))


def _hooked(work: StepWork, collectives: list[Collective]) -> FloatArray:
    """Operators that hooks issue in each phase of one micro step: most, mean and fewest, (3, 3)."""
    found = np.zeros((3, NUM_PHASES))
    for one in collectives:
        if one.phase == "step" or not one.issued[1]:
            continue
        fewest, most = one.issued
        # What comes once in a step is spread over its micro steps.
        calls = one.count / (work.accumulation_steps if one.per == "step" else 1)
        phase = FORWARD if one.phase == "forward" else BACKWARD
        found[:, phase] += np.array((most, (fewest + most) / 2, fewest)) * calls
    return found


def _by_phase(operators: Operators, each: FloatArray) -> FloatArray:
    summed = np.bincount(operators.phase, weights=each * operators.count, minlength=NUM_PHASES)
    return summed.astype(np.float64)


def _compute(operators: Operators, micro_batch: int, device: _Device, hooked: FloatArray, bound: int) -> FloatArray:
    """Seconds of forward, backward and recomputation in one micro step, (3,)."""
    issued = _issued(operators) + hooked[bound]
    on_device = _on_device(operators, micro_batch, device, bound)
    return np.asarray(np.maximum(on_device, issued * device.issue.bounds[bound]), dtype=np.float64)


def _waits_for_host(operators: Operators, micro_batch: int, device: _Device, hooked: FloatArray) -> bool:
    on_device = _on_device(operators, micro_batch, device, EXPECTED)
    issued = _issued(operators) + hooked[EXPECTED]
    return bool((issued * device.issue.expected > on_device).any())


def _at_bounds(transfers: list[Transfer], links: int, host: int) -> list[Transfer]:
    """The same transfers where links between devices and the host are not equally fast."""
    if links == host:
        return transfers
    found = []
    for transfer in transfers:
        bound = links if transfer.in_device else host
        seconds, hidden = transfer.seconds[bound], transfer.hidden[bound]
        found.append(
            Transfer(collective=transfer.collective, seconds=(seconds,) * 3, hidden=(hidden,) * 3)  # whatever the bound
        )
    return found


def _optimizer_rate(work: StepWork, cluster: Cluster, device: _Device) -> Rate:
    """Bytes per second of the optimizer step of one rank."""
    return host_memory_rate(cluster.gpus_per_node) if work.optimizer.on_host else device.memory


# -- one bound of the step ------------------------------------------------------------------------------------


def _parts(
    work: StepWork, *, compute: FloatArray, optimizer: float, transfers: list[Transfer], beside: Beside
) -> _Parts:
    steps = work.accumulation_steps
    exposed = 0.0
    for phase, pers, seconds, times in _phases(work, compute, optimizer):
        if times:
            exposed += times * exposed_seconds(transfers, phase, pers, seconds, beside)
    sums = {False: 0.0, True: 0.0}
    for transfer in transfers:
        collective = transfer.collective
        repeated = steps if collective.per == "micro_step" and collective.phase != "step" else 1
        sums[collective.kind in HOST_KINDS] += transfer.seconds[beside.bound] * repeated
    return _Parts(
        forward=float(compute[FORWARD]) * steps,
        backward=float(compute[BACKWARD]) * steps,
        recompute=float(compute[RECOMPUTE]) * steps,
        optimizer=optimizer,
        communication=sums[False],
        host_transfer=sums[True],
        exposed=exposed,
    )


def _phases(
    work: StepWork, compute: FloatArray, optimizer: float
) -> Iterator[tuple[Phase, tuple[Per, ...], float, int]]:
    """Phases of a step, what is sent in them, the seconds of their computation, and how often they come."""
    forward, backward = float(compute[FORWARD]), float(compute[BACKWARD] + compute[RECOMPUTE])
    for pers, times in (_EVERY, work.accumulation_steps - 1), (_LAST, 1):
        yield "forward", pers, forward, times
        yield "backward", pers, backward, times
    yield "step", _LAST, optimizer, 1


def _scheduled(
    work: StepWork, compute: FloatArray, optimizer: float, transfers: list[Transfer], beside: Beside
) -> Iterator[tuple[str, PhaseWork, float]]:
    """Phases as they are scheduled, in their order, with the seconds that the step counts for each."""
    found: dict[tuple[Phase, int], tuple[str, PhaseWork, float]] = {}
    for phase, pers, seconds, _ in _phases(work, compute, optimizer):
        counted = seconds + exposed_seconds(transfers, phase, pers, seconds, beside)
        name = "optimizer" if phase == "step" else phase
        found[phase, len(pers)] = name, phase_work(transfers, phase, pers, seconds, beside), counted
    for micro_step in range(work.accumulation_steps):
        pers = _LAST if micro_step == work.accumulation_steps - 1 else _EVERY
        yield found["forward", len(pers)]
        yield found["backward", len(pers)]
    yield found["step", len(_LAST)]


# -- the answer --------------------------------------------------------------------------------------------


def _step_time(
    work: StepWork,
    cluster: Cluster,
    operators: Operators,
    expected: _Parts,
    ends: Callable[[], tuple[float, float]],
    used: list[Rate],
) -> StepTime:
    seconds = max(expected.total, _SHORTEST)
    replicas = work.data_parallel or cluster.world_size
    samples = work.micro_batch * work.accumulation_steps * replicas
    model_flops = operators.model_flops(work.micro_batch, work.attention_share) * work.accumulation_steps
    peak = published_peak(cluster.gpu, work.compute_dtype)
    return StepTime(
        step_seconds=seconds,
        ends=ends,
        forward_seconds=expected.forward,
        backward_seconds=expected.backward,
        recompute_seconds=expected.recompute,
        optimizer_seconds=expected.optimizer,
        communication_seconds=expected.communication,
        host_transfer_seconds=expected.host_transfer,
        exposed_communication_seconds=expected.exposed,
        tokens_per_second_per_gpu=samples * work.trace.tokens_per_sample / cluster.world_size / seconds,
        samples_per_second=samples / seconds,
        model_flops=model_flops,
        mfu=None if peak is None else model_flops / seconds / peak,
        basis=worst_basis(rate.basis for rate in used),
        notes=tuple(dict.fromkeys(rate.note for rate in used if rate.note)),
    )
