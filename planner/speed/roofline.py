"""The analytic speed model: every operator against the roofline, every transfer against its wire."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.speed.calibration.record import Calibration
from gpu_plan.planner.speed.collectives import call_seconds
from gpu_plan.planner.speed.device import (
    EXPECTED,
    FAST,
    SLOW,
    StepDevice,
    compute,
    device_of,
    hooked_seconds,
    seconds_of_each,
    slowest_of,
    streams_weights,
    waits_for_host,
)
from gpu_plan.planner.speed.model import (
    HOST_KINDS,
    AxisTime,
    Collective,
    CollectiveKind,
    KernelTimes,
    Layers,
    Per,
    Phase,
    StepTime,
    StepWork,
)
from gpu_plan.planner.speed.operators import (
    BACKWARD,
    FORWARD,
    RECOMPUTE,
    OperatorCache,
    Operators,
)
from gpu_plan.planner.speed.rates import (
    Rate,
    collective_sm_share,
    host_memory_rate,
    published_peak,
    worst_basis,
)
from gpu_plan.planner.speed.streams.degrees import axis_times
from gpu_plan.planner.speed.streams.gantt import chrome_trace, step_spans
from gpu_plan.planner.speed.streams.overlap import (
    Beside,
    PhaseWork,
    Transfer,
    at_bounds,
    beside_host,
    exposed_seconds,
    phase_work,
    together,
)
from gpu_plan.planner.speed.streams.scaling import scaling_words
from gpu_plan.planner.speed.streams.sent import transfers_of
from gpu_plan.planner.trace.events import FloatArray

_EVERY: tuple[Per, ...] = ("micro_step",)
_LAST: tuple[Per, ...] = ("micro_step", "step")
"""What is sent in every micro step, and in the last one."""

_KEPT_DEVICES = 64
_SHORTEST = 1e-9
"""Seconds that a step takes at least, so that a trace without operators has a rate too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Seconds of one optimizer step under one of the three bounds."""

    forward: float
    backward: float
    recompute: float
    optimizer: float
    communication: float
    host_transfer: float
    waited: tuple[float, float, float]
    """For transfers, in forward, in backward with recomputation, and in the optimizer's step."""

    @property
    def exposed(self) -> float:
        return sum(self.waited)

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

    def __init__(
        self,
        here: Calibration | None = None,
        *,
        reentrant: bool = False,
        blocking: bool = False,
        layers: Layers | None = None,
    ) -> None:
        """`reentrant`: what is computed again stands under reentrant checkpoints, transformers' default before 5.
        `blocking`: the host waits for every operator that it issues (CUDA_LAUNCH_BLOCKING=1).
        `layers`: whose they are, in place of what a step says."""
        self._operators = OperatorCache()
        # Held with what it follows from: an id means nothing once its object is gone.
        self._devices: OrderedDict[tuple[object, ...], tuple[Operators, Cluster, StepDevice]] = OrderedDict()
        self._here = here
        self._reentrant = reentrant
        self._blocking = blocking
        self._layers = layers

    def step_time(self, work: StepWork, cluster: Cluster) -> StepTime:
        """Time of one optimizer step. A step costs microseconds once its trace has been seen."""
        operators = self._operators.of(work.trace)
        work = replace(work, layers=self._layers or work.layers)
        device = self._device(work, cluster, operators)
        device = slowest_of(work, cluster, operators, device)
        collectives = together(_waited_for(work))
        calls = [call_seconds(collective, cluster, self._here) for collective in collectives]
        step = _Step(work, cluster, operators, device, blocking=self._blocking)
        step.send(collectives, calls)
        step.learnt = (self._here.learnt if self._here else None) or 1.0
        time = _step_time(work, cluster, operators, step.expected, step.ends, step.used(calls))

        def scaling() -> str | None:
            ranks = work.data_parallel or cluster.world_size
            return scaling_words(time, work, ranks, cluster.world_size // ranks)

        return replace(time, corners=step.corners, scaling=scaling, trace=step.trace, degrees=step.degrees)

    def _device(self, work: StepWork, cluster: Cluster, operators: Operators) -> StepDevice:
        """The device of a step: the same under every strategy and batch."""
        of_step = (work.compute_dtype, work.causal_attention, work.attention_share, work.attention_kernel)
        key = (id(operators), id(cluster), *of_step, work.power_limit_watts, work.layers)
        if key not in self._devices:
            made = device_of(work, cluster, operators, self._here, self._reentrant)
            self._devices[key] = operators, cluster, made
            if len(self._devices) > _KEPT_DEVICES:
                self._devices.popitem(last=False)
        return self._devices[key][2]

    def kernel_times(self, work: StepWork, cluster: Cluster) -> KernelTimes | None:
        """Operator by operator, as `SpeedModel` says."""
        operators = self._operators.of(work.trace, each=True)
        device = self._device(work, cluster, operators)

        @cache
        def sent(kind: CollectiveKind, nbytes: int) -> tuple[float, float, float]:
            call = Collective(kind=kind, bytes=nbytes, phase="forward", per="micro_step", overlap=True)
            return call_seconds(call, cluster, self._here).bounds

        if worst_basis(rate.basis for rate in device.used) == "assumed":
            return None
        return KernelTimes(
            device=np.stack([seconds_of_each(operators, work.micro_batch, device, bound) for bound in range(3)]),
            issue=device.issue.bounds,
            sent=sent,
        )


def _waited_for(work: StepWork) -> Iterable[Collective]:
    """A step's collectives; Megatron-DeepSpeed computes nothing beside those of ranks that share a layer
    (bigscience-workshop megatron/mpu/mappings.py: _reduce; microsoft megatron/arguments.py, from 2023-07 on: under
    DeepSpeed `async_tensor_model_parallel_allreduce` is put off)."""
    if work.layers != "megatron-deepspeed":
        return work.collectives
    return (replace(one, products=0.0) if one.axis == "tensor" else one for one in work.collectives)


class _Step:
    """One optimizer step on its devices: what it takes under each bound, when it is asked for."""

    def __init__(
        self, work: StepWork, cluster: Cluster, operators: Operators, device: StepDevice, *, blocking: bool
    ) -> None:
        self.work, self.cluster, self.operators, self.device = work, cluster, operators, device
        self.blocking = blocking
        self.learnt = 1.0
        """What runs on this machine took of the expected time, where some were compared."""
        self.optimizer = _optimizer_rate(work, cluster, device)
        self.taken = collective_sm_share(cluster.gpu)
        self._compute: dict[int, tuple[FloatArray, FloatArray]] = {}
        self._parts: dict[tuple[int, int, int], _Parts] = {}
        self._corners: tuple[float, ...] = ()

    def send(self, collectives: list[Collective], calls: list[Rate]) -> None:
        """What is sent, and the seconds of one call of each."""
        self.hooked = hooked_seconds(self.work, collectives)
        self.transfers = transfers_of(self.work, self.operators, self.device, self.taken, collectives, calls)
        self.by_host = self.work.optimizer.on_host or not all(transfer.in_device for transfer in self.transfers)

    def compute(self, bound: int) -> FloatArray:
        """Seconds of computation by phase."""
        return self._computed(bound)[0]

    def waits(self, on_device: int, links: int) -> list[Transfer]:
        """The transfers, without what of their waits the device stands idle for its host anyway."""
        idle = self._computed(on_device)[1]
        return beside_host(self.transfers, float(idle[FORWARD]), float(idle[BACKWARD] + idle[RECOMPUTE]), links)

    def _computed(self, bound: int) -> tuple[FloatArray, FloatArray]:
        if bound not in self._compute:
            self._compute[bound] = compute(
                self.operators, self.work.micro_batch, self.device, self.hooked, bound, blocking=self.blocking
            )
        return self._compute[bound]

    def parts(self, on_device: int, links: int, host: int) -> _Parts:
        """Where the device, links between devices and what passes the host are at these bounds."""
        bounds = (on_device, links, host if self.by_host else links)  # where nothing passes the host, it is no other
        if bounds not in self._parts:
            self._parts[bounds] = self._parts_at(*bounds)
        return self._parts[bounds]

    def _parts_at(self, on_device: int, links: int, host: int) -> _Parts:
        stepped = host if self.work.optimizer.on_host else on_device
        return _parts(
            self.work,
            compute=self.compute(on_device),
            optimizer=self.work.optimizer.parameter_bytes_read_written / self.optimizer.bounds[stepped],
            transfers=at_bounds(self.waits(on_device, links), links, host),
            beside=self._beside(on_device, links),
        )

    def _beside(self, on_device: int, links: int) -> Beside:
        return Beside(
            bound=links,
            memory_rate=self.device.memory.bounds[on_device],
            compute_share=self.taken.bounds[on_device],
        )

    @property
    def expected(self) -> _Parts:
        return self.parts(EXPECTED, EXPECTED, EXPECTED)

    def corners(self) -> tuple[float, ...]:
        """Seconds at all eight corners of the bounds."""
        if not self._corners:
            ends = product((SLOW, FAST), repeat=3)
            self._corners = tuple(max(self.parts(*bounds).total, _SHORTEST) for bounds in ends)
        return self._corners

    def ends(self) -> tuple[float, float]:
        """Seconds at the fast and at the slow end, with what is expected between them."""
        slow, fast = self.parts(SLOW, SLOW, SLOW).total, self.parts(FAST, FAST, FAST).total
        seconds = max(self.expected.total, _SHORTEST)
        return min(max(fast, _SHORTEST), seconds, seconds * self.learnt), max(slow, seconds, seconds * self.learnt)

    def trace(self, title: str) -> dict[str, Any]:
        """The step as a timeline."""
        beside = self._beside(EXPECTED, EXPECTED)
        phases = _scheduled(
            self.work, self.compute(EXPECTED), self.expected.optimizer, self.waits(EXPECTED, EXPECTED), beside
        )
        return chrome_trace(list(step_spans(phases)), title)

    def degrees(self) -> tuple[AxisTime, ...]:
        """What each degree sends, and how long the step waits for it."""
        beside, own = self._beside(EXPECTED, EXPECTED), self.expected.optimizer

        def exposed(some: list[Transfer]) -> float:
            return _parts(
                self.work, compute=self.compute(EXPECTED), optimizer=own, transfers=some, beside=beside
            ).exposed

        return axis_times(self.work, self.waits(EXPECTED, EXPECTED), EXPECTED, exposed)

    def used(self, calls: list[Rate]) -> list[Rate]:
        """Every rate that the figures rest on."""
        found = [*self.device.used, *([self.optimizer] if self.work.optimizer.parameter_bytes_read_written else [])]
        found += [call for call in calls if call.expected > 0]
        if self.device.weights is not None and streams_weights(self.operators, self.work.micro_batch, self.device):
            found.append(self.device.weights)
        host_bound = waits_for_host(self.operators, self.work.micro_batch, self.device, self.hooked)
        return [*found, self.device.issue] if host_bound else found


def _optimizer_rate(work: StepWork, cluster: Cluster, device: StepDevice) -> Rate:
    """Bytes per second of the optimizer step of one rank."""
    return host_memory_rate(cluster.gpus_per_node) if work.optimizer.on_host else device.memory


# -- one bound of the step ------------------------------------------------------------------------------------


def _parts(
    work: StepWork, *, compute: FloatArray, optimizer: float, transfers: list[Transfer], beside: Beside
) -> _Parts:
    steps = work.accumulation_steps
    waited: dict[Phase, float] = {"forward": 0.0, "backward": 0.0, "step": 0.0}
    for phase, pers, seconds, times in _phases(work, compute, optimizer):
        if times:
            waited[phase] += times * exposed_seconds(transfers, phase, pers, seconds, beside)
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
        waited=(waited["forward"], waited["backward"], waited["step"]),
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
        exposed_by_phase=expected.waited,
        tokens_per_second_per_gpu=samples * work.trace.tokens_per_sample / cluster.world_size / seconds,
        samples_per_second=samples / seconds,
        model_flops=model_flops,
        mfu=None if peak is None else model_flops / seconds / peak,
        basis=worst_basis(rate.basis for rate in used),
        notes=tuple(dict.fromkeys(rate.note for rate in used if rate.note)),
    )
