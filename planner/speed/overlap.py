"""How long computation waits for transfers that run beside it."""

from dataclasses import dataclass

from gpu_plan.planner.speed.model import HOST_KINDS, Collective, Per, Phase

_PACKING = 2
"""A bucket is read and written once more: gathered weights are copied out into parameters (torch
_fsdp_collectives.py: foreach_all_gather_copy_out), gradients copied in (foreach_reduce_scatter_copy_in; reducer.cpp:
mark_variable_ready_dense)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One `Collective` with the seconds of all its calls in one micro step (or one step), slow, expected, fast."""

    collective: Collective
    seconds: tuple[float, float, float]

    def one_call(self, bound: int) -> float:
        """Seconds of one of its calls."""
        return self.seconds[bound] / max(1, self.collective.count)

    @property
    def in_device(self) -> bool:
        """Whether it moves data between devices."""
        return self.collective.kind not in HOST_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What transfers take from the computation that they run beside, under one of the bounds."""

    bound: int
    memory_rate: float
    """Bytes per second of the device's memory."""
    compute_share: float
    """Share of the multiprocessors that a collective occupies while it runs."""


def exposed_seconds(
    transfers: list[Transfer], phase: Phase, pers: tuple[Per, ...], compute: float, beside: Beside
) -> float:
    """Seconds by which the transfers of one phase prolong its computation of `compute` seconds.

    Those that do not overlap are waited for. The others hide, except the one at the edge of the phase: nothing is
    computed before the first weights are gathered, nor after the last gradients are ready. While a collective runs
    it occupies multiprocessors, and what it packs passes through the device's memory once more.
    """
    bound = beside.bound
    ours = [t for t in transfers if t.collective.phase == phase and t.collective.per in pers]
    waited = sum(t.seconds[bound] for t in ours if not t.collective.overlap)
    overlapped = [t for t in ours if t.collective.overlap]
    between = [t for t in overlapped if t.in_device]
    device = sum(t.seconds[bound] for t in between)
    host = sum(t.seconds[bound] for t in overlapped if not t.in_device)
    edge = _edge(between, phase, bound)
    hidden = min(device - edge, compute)
    lost = hidden * beside.compute_share
    lost += min(hidden, sum(_packed_bytes(t) for t in between) / beside.memory_rate)
    late = max(0.0, max(device - edge, host) - compute)
    # What slows the computation lengthens the time that transfers hide behind: never above running one by one.
    return waited + min(edge + late + lost, device + max(0.0, host - device)) if between else waited + late


def _edge(between: list[Transfer], phase: Phase, bound: int) -> float:
    """Seconds of the call at the phase's edge: the first gather forward, the last reduction backward.

    That is the one with the embeddings, as a rule the largest: the first to be used, and the last to get a gradient.
    """
    gathers = phase == "forward"
    ends = [t.one_call(bound) for t in between if t.seconds[bound] > 0 and _gathers(t) == gathers]
    return max(ends, default=0.0)


def _gathers(transfer: Transfer) -> bool:
    return transfer.collective.kind in ("all_gather", "broadcast")


def _packed_bytes(transfer: Transfer) -> float:
    collective = transfer.collective
    return float(_PACKING * collective.bytes * collective.count) if transfer.seconds[1] > 0 else 0.0
