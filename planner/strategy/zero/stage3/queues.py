"""ZeRO-3's reduction stream, on which every gradient is recorded that is copied into the bucket.

Mirrors deepspeed/runtime/zero/stage3.py (0.19.8): __add_grad_to_ipg_bucket (record_stream),
__reduce_and_partition_ipg_grads (param_reduce_events, of which max_param_reduce_events may be open before the host
waits for the oldest) and independent_gradient_partition_epilogue (the stream is synchronised). Without overlap_comm the
stream is the computing one, and nothing waits.
"""

from collections import deque

from gpu_plan.planner.memory.schedule import DEFAULT_STREAM, Clock, DeviceStreams, Moment, Waits

# stage3.py: reduce_and_partition_stream, where overlap_comm makes one beside the default stream.
_REDUCE_STREAM = 1
MAX_OPEN_REDUCTIONS = 2
"""max_param_reduce_events."""


class ReduceQueue:
    """What is queued on the reduction stream; `overlaps` is overlap_comm."""

    def __init__(self, *, overlaps: bool) -> None:
        self._overlaps = overlaps
        self._streams = DeviceStreams()
        self._open: deque[Clock] = deque()

    def launched(self, kernels: int, moment: Moment) -> None:
        """The computation's kernels that were launched so far."""
        self._streams.launched(kernels, moment)

    def begin(self, moment: Moment) -> None:
        """A batch is copied to the device: the host waits for what is queued before."""
        self._streams.host_waits(self._streams.record(DEFAULT_STREAM), moment)

    def copy_gradient(self) -> Waits | None:
        """A gradient is copied into the bucket, and its own storage freed."""
        if not self._overlaps:
            return None
        self._streams.wait(_REDUCE_STREAM, DEFAULT_STREAM)
        return self._streams.free(_REDUCE_STREAM)

    def reduce(self, moment: Moment) -> None:
        """A bucket is reduced; the host first waits for the oldest where more are open than may be."""
        if len(self._open) > MAX_OPEN_REDUCTIONS:
            self._streams.host_waits(self._open.popleft(), moment)
        self._open.append(self._streams.record(_REDUCE_STREAM))

    def end_backward(self, moment: Moment) -> None:
        """The host waits for the stream."""
        self._open.clear()
        self._streams.host_waits(self._streams.record(_REDUCE_STREAM), moment)
