"""Blocks that wait for a stream: torch's counters, clocks of streams, and FSDP1's limiter as the real one runs."""

import numpy as np
import pytest

from gpu_plan.planner.memory.allocator.replay import AllocatorResult, replay, simulate
from gpu_plan.planner.memory.schedule import (
    DEFAULT_STREAM,
    MAX_QUEUED_LAUNCHES,
    NEVER,
    RUNS_AHEAD,
    DeviceStreams,
    Freed,
    Moment,
    Schedule,
)
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.strategy.base import Strategy
from gpu_plan.planner.strategy.fsdp1 import rank
from gpu_plan.planner.strategy.fsdp1.queues import UNSHARD_STREAM, Queues
from gpu_plan.planner.strategy.kinds.zero1 import Zero1
from gpu_plan.planner.strategy.kinds.zero2 import Zero2
from gpu_plan.planner.strategy.kinds.zero3 import Zero3
from gpu_plan.planner.strategy.zero.stage3.queues import MAX_OPEN_FETCHES, MAX_OPEN_REDUCTIONS
from gpu_plan.planner.strategy.zero.stage3.queues import Queues as ZeroQueues
from gpu_plan.planner.units import MIB
from gpu_plan.planner.workload.training import Stack
from tests.support.tiny_trace import tiny_trace
from tests.unit.strategy.test_strategy_fsdp1 import BLOCK, adapted, blocks, context, run
from tests.unit.strategy.test_strategy_zero import context as zero_context

NOW: Moment = (1, 0)
LATER: Moment = (9, 9)
LAYERS = 8
MATRICES = 8
TALL = ((1024, 4096), *[(4096, 4096)] * LAYERS, (1024, 4096))


def waited(returns: list[int], capacity: int | None = None, *, plain: bool = False) -> AllocatorResult:
    """30 MiB come and go, three times; `returns`: from which event on each of the six events' block serves again."""
    signs, tensors = np.asarray([1, -1, 1, -1, 1, -1]), np.asarray([0, 0, 1, 1, 2, 2])
    sizes = np.full(3, 30 * MIB)
    return replay(signs, tensors, sizes, returns=np.asarray(returns), capacity=capacity, plain=plain)


def test_a_waiting_block_is_freed_but_active_and_serves_no_one() -> None:
    """memory_stats: allocated falls with free, active when the block is back in its pool."""
    at_once, waits = waited([0, 1, 2, 3, 4, 5]), waited([0, 4, 2, 3, 4, 5])
    assert at_once.peak_reserved_bytes == at_once.peak_active_bytes == 30 * MIB
    assert waits.peak_allocated_bytes == 30 * MIB
    assert waits.peak_active_bytes == waits.peak_reserved_bytes == 60 * MIB
    assert waits.addresses[2] != waits.addresses[0]
    assert waits.addresses[4] in (waits.addresses[0], waits.addresses[2])


def test_a_waiting_block_serves_the_very_request_at_which_its_event_has_passed() -> None:
    assert waited([0, 2, 2, 4, 4, 5]).peak_reserved_bytes == 30 * MIB
    assert waited([0, 3, 2, 5, 4, 5]).peak_reserved_bytes == 60 * MIB


def test_a_block_that_never_comes_back_by_itself_does_before_cached_memory_is_given_back() -> None:
    """release_cached_blocks waits for all events, then frees what is whole."""
    free = waited([0, 6, 2, 6, 4, 6])
    assert free.peak_reserved_bytes == free.peak_active_bytes == 90 * MIB
    squeezed = waited([0, 6, 2, 6, 4, 6], capacity=60 * MIB)
    assert squeezed.oom_at is None
    assert squeezed.retried_at == (4,)
    assert squeezed.peak_reserved_bytes == 60 * MIB


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("returns", "blocks"),
    [([0, 1, 2, 3, 4, 5], 1), ([0, 4, 2, 3, 4, 5], 2), ([0, 3, 2, 5, 4, 5], 2), ([0, 6, 2, 6, 4, 6], 3)],
    ids=["at once", "the first", "each a while", "none comes back"],
)
def test_blocks_wait_alike_in_what_is_compiled_and_in_plain_python(
    returns: list[int], blocks: int, plain: bool
) -> None:
    """A request of 30 MiB that finds all that came before still waiting takes a segment of its own."""
    found = waited(returns, plain=plain)
    assert found.peak_allocated_bytes == 30 * MIB
    assert found.peak_active_bytes == found.peak_reserved_bytes == 30 * MIB * blocks
    squeezed = waited(returns, 30 * MIB, plain=plain)
    assert (squeezed.oom_at, squeezed.peak_reserved_bytes) == (None, 30 * MIB)


def known(streams: DeviceStreams, freed: Freed) -> dict[Schedule, Moment]:
    """Since when the host knows that a block is done with, by schedule."""
    until = streams.until()[:, freed].tolist()
    return {one: streams.moments[moment] for one, moment in zip(RUNS_AHEAD, until, strict=True) if moment != NEVER}


def test_what_an_event_stands_behind_is_known_on_every_stream() -> None:
    streams = DeviceStreams()
    streams.wait(1, 0)
    freed = streams.free(1)
    streams.host_waits(streams.record(0), NOW)
    assert known(streams, freed) == {Schedule.AHEAD: NOW, Schedule.QUEUED: NOW}, "the other stream may still be at it"
    streams.wait(0, 1)
    streams.host_waits(streams.record(0), LATER)
    assert known(streams, freed)[Schedule.LAGS] == LATER


def test_the_queue_of_launches_holds_back_a_host_that_nothing_else_does() -> None:
    streams = DeviceStreams()
    streams.launched(1, NOW)
    freed = streams.free(0)
    streams.launched(2, NOW)
    streams.launched(1 + MAX_QUEUED_LAUNCHES, NOW)
    assert not known(streams, freed)
    streams.launched(2 + MAX_QUEUED_LAUNCHES, LATER)
    assert known(streams, freed) == dict.fromkeys(RUNS_AHEAD, LATER)


def peaks(stream: RankStream, pool: int) -> dict[Schedule, int]:
    """Most gathered blocks that stand in a stream's pool, the root's and the smaller ones aside."""
    found = {}
    for schedule in Schedule:
        result = simulate(stream, 1, schedule=schedule)
        segments = [s for s in result.segments if s.stream == pool and s.nbytes == 2 * BLOCK]
        found[schedule] = len(segments)
    return found


def test_the_limiter_bounds_gathered_blocks_and_waiting_changes_no_allocated_byte() -> None:
    """Two blocks stand at once in backward, one gathered ahead; the limiter lets one more wait for its free event."""
    stream = run(context(blocks(TALL)))[0].stream
    found = peaks(stream, UNSHARD_STREAM)
    assert found[Schedule.WAITS] == 2
    assert found[Schedule.AHEAD] == found[Schedule.LAGS] == 3
    assert found[Schedule.QUEUED] == LAYERS, "a step of few kernels is queued as a whole"
    results = {schedule: simulate(stream, 1, schedule=schedule) for schedule in Schedule}
    assert len({result.peak_allocated_bytes for result in results.values()}) == 1
    # Reductions that lag keep two flat gradients more from coming back.
    lagging = results[Schedule.LAGS].peak_active_bytes - results[Schedule.AHEAD].peak_active_bytes
    assert 2 * 2 * BLOCK <= lagging < 3 * 2 * BLOCK


def test_adapters_between_16_bit_layers_leave_the_limiter_in_force() -> None:
    found = peaks(run(adapted())[0].stream, UNSHARD_STREAM)
    assert found[Schedule.QUEUED] == found[Schedule.AHEAD]


class Recorded(Queues):
    """Ages of the events that the limiter waits for: 1 is the newest, None where it takes none."""

    ages: list[int | None]

    def limit_gathers(self, moment: Moment) -> None:
        Recorded.ages.append(len(self._free_events) if len(self._free_events) >= 2 else None)
        super().limit_gathers(moment)


def limiter_ages(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Of eight wrapped layers and a root, over two iterations."""
    Recorded.ages = []
    monkeypatch.setattr(rank, "Queues", Recorded)
    run(context(blocks(TALL)))
    return Recorded.ages


def test_the_limiter_takes_the_events_that_torchs_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded from torch 2.13 (tests/accuracy/test_fsdp1_limiter.py runs it). The root is asked for again in backward,
    and takes a turn for nothing."""
    steady = [2] * (LAYERS - 2)
    first = [None, None, None, *steady, 2, None, None, *steady]
    second = [4, *[3] * LAYERS, 3, 2, None, *steady]
    assert limiter_ages(monkeypatch) == [*first, *second]


def test_the_trainer_reads_the_loss_before_the_optimizer_steps() -> None:
    """What waits then is back for the step; a loop that reads nothing goes on with gradients that wait."""

    def after_backward(stack: Stack) -> list[int]:
        stream = run(context(blocks(TALL), stack=stack))[0].stream
        returns = stream.returns(Schedule.LAGS)
        assert returns is not None
        at = np.arange(len(returns))
        waiting = returns > at
        step = int(np.searchsorted(stream.event_segment, stream.step_segments[0]))
        return [int(event) for event in at[waiting & (at < step)] if returns[event] > step]

    assert not after_backward(Stack.TRAINER)
    assert after_backward(Stack.ACCELERATE)


def zero3(**settings: str) -> RankStream:
    """Eight matrices of one mebielement, each a bucket of its own."""
    chosen = {"zero.reduce_bucket_size": str(MIB), "zero.param_persistence_threshold": "0"} | {
        f"zero.{key}": value for key, value in settings.items()
    }
    return Zero3().rank(zero_context(tiny_trace([(1024, 1024)] * MATRICES), settings=tuple(chosen.items()))).stream


def waiting(stream: RankStream, schedule: Schedule, pool: int, segments: int = 9) -> int:
    """Most blocks of a stream's pool that are freed and wait at once, in so many segments of the run."""
    returns = stream.returns(schedule)
    if returns is None:
        return 0
    inside = (stream.cuda_stream[stream.event_tensor] == pool) & (stream.event_segment < segments)
    at = np.flatnonzero(inside)
    back = returns[at]
    return max(int(((at <= event) & (back > event)).sum()) for event in at)


def test_gradients_of_zero_3_wait_for_as_many_reductions_as_may_be_open() -> None:
    """stage3.py: max_param_reduce_events is two; the host waits for the oldest once there are more."""
    stream = zero3()
    assert waiting(stream, Schedule.QUEUED, DEFAULT_STREAM) == MAX_OPEN_REDUCTIONS + 2, (
        "three open ones, for the host waits before it opens a fourth, and what is copied"
    )
    assert len({simulate(stream, 1, schedule=schedule).peak_allocated_bytes for schedule in Schedule}) == 1


@pytest.mark.parametrize("prefetch", ["0", str(MIB), str(2 * MIB)])
def test_gathered_parameters_of_zero_3_wait_for_the_computation(prefetch: str) -> None:
    """partition_parameters.py: free_param records the computing stream. A gathered matrix takes 2 MiB.

    Where the network is the slower, what was used before the third parameter back landed is over once the host has
    waited for its event: that one and two more still wait, and the one that is freed next. Where it is not, a step of
    few kernels is queued as a whole.
    """
    stream = zero3(prefetch_bucket_size=prefetch, max_reuse_distance="0")
    gathers = ZeroQueues(overlaps=True).gather_pool
    # The first iteration gathers nothing ahead; in the second the host is held by reductions alone where all is there.
    assert waiting(stream, Schedule.AHEAD, gathers, segments=2) == MAX_OPEN_FETCHES + 2
    assert waiting(stream, Schedule.AHEAD, gathers) <= MAX_OPEN_REDUCTIONS + 3
    assert waiting(stream, Schedule.QUEUED, gathers) >= MATRICES
    assert waiting(stream, Schedule.WAITS, gathers) == 0
    assert len({simulate(stream, 1, schedule=schedule).peak_allocated_bytes for schedule in Schedule}) == 1
    reserved = {schedule: simulate(stream, 1, schedule=schedule).peak_reserved_bytes for schedule in Schedule}
    assert reserved[Schedule.WAITS] <= reserved[Schedule.AHEAD] <= reserved[Schedule.LAGS] <= reserved[Schedule.QUEUED]


def test_what_zero_3_gathers_and_reduces_comes_from_pools_of_their_own() -> None:
    stream = zero3()
    queues = ZeroQueues(overlaps=True)
    own = stream.labels[-len(stream.labels) :]
    placed = stream.cuda_stream[-len(own) :]
    pools = {label: int(pool) for label, pool in zip(own, placed, strict=True)}
    assert pools["gathered weight"] == queues.gather_pool != DEFAULT_STREAM
    assert pools["ZeRO reduce bucket"] == pools["weight partitions"] == DEFAULT_STREAM


def test_the_host_waits_for_the_oldest_of_more_than_two_fetches() -> None:
    """The computation that used what landed before is over then; a gather that is done at once says nothing of it."""
    queues = ZeroQueues(overlaps=True)
    freed = []
    for fetch in range(4):
        queues.gather()
        queues.limit((fetch, 0))
        queues.use(1)
        freed.append(queues.free_gathered())
    waits = [known(queues.streams, found) for found in freed if found is not None]
    assert [Schedule.AHEAD in until for until in waits] == [False] * 4
    queues.gather()
    queues.limit(LATER)
    waits = [known(queues.streams, found) for found in freed if found is not None]
    assert [until.get(Schedule.AHEAD) for until in waits] == [LATER, None, None, None]
    assert not any(Schedule.QUEUED in until for until in waits)


def test_without_overlap_zero_3_has_one_stream() -> None:
    stream = zero3(overlap_comm="false")
    assert stream.event_return is None
    assert not stream.cuda_stream.any()


@pytest.mark.parametrize("kind", [Zero1(), Zero2()])
def test_overlapping_reductions_of_zero_1_and_2_have_a_pool_of_their_own_and_nothing_waits(kind: Strategy) -> None:
    """stage_1_and_2.py: average_tensor, copy_grads_in_partition; the buckets go once the device has been waited for."""

    def streams(overlap: str) -> tuple[RankStream, set[str]]:
        settings = (("zero.overlap_comm", overlap), ("zero.reduce_bucket_size", str(MIB)))
        stream = kind.rank(zero_context(tiny_trace([(1024, 1024)] * MATRICES), settings=settings)).stream
        placed = stream.cuda_stream[-len(stream.labels) :]
        return stream, {label for label, pool in zip(stream.labels, placed, strict=True) if pool}

    one, none = streams("false")
    two, own = streams("true")
    assert not none
    assert own == {"gradients in partition"}
    assert one.event_return is None
    assert two.event_return is None
