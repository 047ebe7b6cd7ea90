"""FSDP1's streams, and where its host waits for the device.

Mirrors torch/distributed/fsdp (torch 2.13): _runtime_utils.py (_init_streams, _wait_for_computation_stream, _unshard
with its rate limiter, _reshard, _post_backward_hook, _post_backward_final_callback), _limiter_utils.py
(_FreeEventQueue), _flat_param.py (_free_low_precision_sharded_param, _free_unsharded_flat_param: each records the
current stream on what it frees) and ProcessGroupNCCL, which runs all collectives of one group on one stream of its own
that the caller's stream waits for.
"""

from collections import deque

from gpu_plan.planner.memory.schedule import (
    DEFAULT_STREAM,
    LIMITED,
    RUNS_AHEAD,
    DeviceStreams,
    Event,
    Freed,
    Moment,
    Schedule,
)

PRE_UNSHARD_STREAM, UNSHARD_STREAM, POST_BACKWARD_STREAM = 1, 2, 3
"""_init_streams; what is allocated on them comes from pools of their own."""
# Gathers and reductions share one communicator, whose stream they take in turns.
_NCCL_STREAM = 4
MAX_INFLIGHT_ALL_GATHERS = 2
"""_FreeEventQueue: free events that may be queued before the next all-gather waits for the oldest."""


class Queues:
    """What the host has queued on each stream, and the limiter's events.

    `limits`: whether the limiter holds the host back in every schedule; otherwise it does so in backward alone where
    the device's queue of launches is what fills up.
    """

    def __init__(self, *, limits: bool = True) -> None:
        self._limits = limits
        self._limited: tuple[Schedule, ...] = ()
        self.streams = DeviceStreams()
        self._free_events: deque[Event] = deque()

    def begin_forward(self) -> None:
        """_wait_for_computation_stream."""
        self._limited = RUNS_AHEAD if self._limits else LIMITED
        self.streams.wait(UNSHARD_STREAM, DEFAULT_STREAM)
        self.streams.wait(PRE_UNSHARD_STREAM, DEFAULT_STREAM)

    def begin_backward(self) -> None:
        """The limiter holds from here on, whatever was queued before."""
        self._limited = RUNS_AHEAD

    def launched(self, kernels: int, moment: Moment) -> None:
        """The computation's kernels that were launched so far."""
        self.streams.launched(kernels, moment)

    def cast_shard(self) -> None:
        """The unshard stream waits for the low-precision shard."""
        self.streams.wait(UNSHARD_STREAM, PRE_UNSHARD_STREAM)

    def limit_gathers(self, moment: Moment) -> None:
        """The rate limiter: where enough frees are queued, the host waits for the oldest."""
        if len(self._free_events) >= MAX_INFLIGHT_ALL_GATHERS:
            self.streams.host_waits(self._free_events.popleft(), moment, self._limited)

    def gather(self, nbytes: int = 0, issued: tuple[int, int] = (0, 0)) -> None:
        """An all-gather, issued on the unshard stream; by so many operators, fewest and most."""
        self._collective(UNSHARD_STREAM, "all_gather", nbytes, issued)

    def use_gathered(self) -> None:
        """The computation waits for all that was gathered so far."""
        self.streams.wait(DEFAULT_STREAM, UNSHARD_STREAM)

    def free_cast_shard(self) -> Freed:
        return self.streams.free(UNSHARD_STREAM)

    def free_gathered(self) -> Freed:
        """The padded flat parameter is freed, and the free event is queued."""
        waits = self.streams.free(DEFAULT_STREAM)
        self._free_events.append(self.streams.record(DEFAULT_STREAM))
        return waits

    def reduce(self, nbytes: int = 0, issued: tuple[int, int] = (0, 0)) -> None:
        """The reduction waits for the gradient, and is issued on the post-backward stream."""
        self.streams.wait(POST_BACKWARD_STREAM, DEFAULT_STREAM)
        self._collective(POST_BACKWARD_STREAM, "reduce_scatter", nbytes, issued)

    def free_gradient(self) -> Freed:
        """The unsharded gradient goes with the post-backward stream recorded on it."""
        return self.streams.free(POST_BACKWARD_STREAM)

    def end_backward(self) -> None:
        """_post_backward_final_callback: the computation waits for the last reduction."""
        self.streams.wait(DEFAULT_STREAM, POST_BACKWARD_STREAM)

    def host_meets(self, moment: Moment) -> None:
        """The host reads something that the computation made."""
        self.streams.host_waits(self.streams.record(DEFAULT_STREAM), moment)

    def _collective(self, stream: int, what: str, nbytes: int, issued: tuple[int, int]) -> None:
        self.streams.wait(_NCCL_STREAM, stream)
        self.streams.send(_NCCL_STREAM, what, nbytes, issued)
        self.streams.wait(stream, _NCCL_STREAM)
