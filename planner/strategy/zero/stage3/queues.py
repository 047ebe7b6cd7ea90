"""ZeRO-3's streams: the one that gathers, the one that reduces, and what of the computing one the host knows.

Mirrors deepspeed 0.19.8 (runtime/zero): parameter_offload.py: DeepSpeedZeRoOffload.__init__ (allgather_stream),
partitioned_param_coordinator.py: _fetch_sub_module_impl (gathers and their copies on that stream, of whose events
max_ongoing_fetch_events may be open before the host waits for the oldest; the computation waits for the stream) and
partition_parameters.py: free_param (records the computing stream on a parameter that is freed). stage3.py:
__add_grad_to_ipg_bucket (record_stream), __reduce_and_partition_ipg_grads (param_reduce_events, of which
max_param_reduce_events may be open), partition_grads (record_stream) and independent_gradient_partition_epilogue (the
stream is synchronised). Without overlap_comm all of it is the computing stream, and nothing waits.

The stream that gathers never waits for the computing one: how far the host gets ahead of the computation follows from
which of the two is the slower. Where the network is, a parameter lands when the computation that uses what landed
before it is over, and the limit on events holds the host as near (schedules AHEAD and LAGS). Where the computation is,
gathers are done at once, their events hold nobody, and in forward the queue of launches alone does (QUEUED).
"""

from collections import deque

from gpu_plan.planner.memory.schedule import (
    DEFAULT_STREAM,
    DeviceStreams,
    Event,
    Freed,
    Moment,
    Schedule,
)

GATHERS, REDUCES = "all_gather", "reduce_scatter"
"""Kinds of what is sent."""
_REDUCE, _GATHER = 1, 2
# Gathers and reductions of all ranks share one communicator, whose work runs in the order in which it was issued.
_NCCL = 3
MAX_OPEN_REDUCTIONS = 2
"""max_param_reduce_events."""
MAX_OPEN_FETCHES = 2
"""max_ongoing_fetch_events."""


def pools(*, overlaps: bool) -> tuple[int, int]:
    """Streams from whose pools gathered parameters come, and what a reduction makes."""
    return (_GATHER, _REDUCE) if overlaps else (DEFAULT_STREAM, DEFAULT_STREAM)


class Queues:
    """What is queued on each stream; `overlaps` is overlap_comm."""

    def __init__(self, *, overlaps: bool) -> None:
        self._overlaps = overlaps
        self.streams = DeviceStreams()
        self._reductions: deque[Event] = deque()
        self._fetches: deque[tuple[Event, Event]] = deque()
        """Each event, and the computing stream's before it: what that stands behind is over by then where the network
        is the slower."""
        self.gather_pool, self.reduce_pool = pools(overlaps=overlaps)

    @property
    def sends(self) -> bool:
        """Whether what is gathered and reduced is queued on streams of their own."""
        return self._overlaps

    def launched(self, kernels: int, moment: Moment) -> None:
        """The computation's kernels that were launched so far."""
        self.streams.launched(kernels, moment)

    def begin(self, moment: Moment) -> None:
        """A batch is copied to the device: the host waits for what is queued before."""
        self.streams.host_waits(self.streams.record(DEFAULT_STREAM), moment)

    # -- gathered parameters ---------------------------------------------------------------------------------

    def gather(self, nbytes: int = 0, issued: tuple[int, int] = (0, 0)) -> None:
        """An all-gather, issued by so many operators, fewest and most."""
        if self._overlaps:
            self._collective(_GATHER, GATHERS, nbytes, issued)

    def limit(self, moment: Moment) -> None:
        """Before a parameter is waited for: the oldest of more open events than may be."""
        if len(self._fetches) > MAX_OPEN_FETCHES:
            event, before = self._fetches.popleft()
            self.streams.host_waits(event, moment, (Schedule.QUEUED,), behind=before)

    def use(self, landed: int) -> None:
        """The computation waits for what was gathered; each parameter that has landed leaves an event."""
        if not self._overlaps:
            return
        before = self.streams.record(DEFAULT_STREAM) if landed else 0
        self.streams.wait(DEFAULT_STREAM, _GATHER)
        for _ in range(landed):
            self._fetches.append((self.streams.record(_GATHER), before))

    def free_gathered(self) -> Freed | None:
        """A parameter is freed that the computation may still use."""
        return self.streams.free(DEFAULT_STREAM) if self._overlaps else None

    # -- gradients -------------------------------------------------------------------------------------------

    def copy_gradient(self) -> Freed | None:
        """A gradient is copied into the bucket, and its own storage freed."""
        if not self._overlaps:
            return None
        self.streams.wait(_REDUCE, DEFAULT_STREAM)
        return self.streams.free(_REDUCE)

    def hold_gradient(self) -> None:
        """One that is too large for the bucket waits for its reduction as it is."""
        if self._overlaps:
            self.streams.wait(_REDUCE, DEFAULT_STREAM)

    def reduce(self, moment: Moment, nbytes: int = 0, issued: tuple[int, int] = (0, 0)) -> None:
        """A bucket is reduced; the host first waits for the oldest where more are open than may be."""
        if len(self._reductions) > MAX_OPEN_REDUCTIONS:
            self.streams.host_waits(self._reductions.popleft(), moment)
        if self._overlaps:
            self._collective(_REDUCE, REDUCES, nbytes, issued)
            self._reductions.append(self.streams.record(_REDUCE))

    def free_reduced(self) -> Freed | None:
        """A gradient that was reduced where it stood is freed."""
        return self.streams.free(_REDUCE) if self._overlaps else None

    def end_backward(self, moment: Moment) -> None:
        """The host waits for the stream."""
        self._reductions.clear()
        self.streams.host_waits(self.streams.record(self.reduce_pool), moment)

    def _collective(self, stream: int, what: str, nbytes: int, issued: tuple[int, int]) -> None:
        self.streams.wait(_NCCL, stream)
        self.streams.send(_NCCL, what, nbytes, issued)
        self.streams.wait(stream, _NCCL)
