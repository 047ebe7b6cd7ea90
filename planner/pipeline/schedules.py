"""What each rank of a pipeline does, in the order in which torch's schedules run it.

Mirrors torch/distributed/pipelining/schedules.py (torch 2.13): ScheduleGPipe and Schedule1F1B (_step_microbatches),
ScheduleInterleaved1F1B and ScheduleInterleavedZeroBubble (_calculate_single_rank_operations, _get_warmup_ops,
_get_1f1b_rank_ops). Orders are the same; the empty slots that torch adds for its own pictures are left out.
"""

from collections.abc import Iterator
from enum import StrEnum

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.units import ceil_div


class Kind(StrEnum):
    """What an action computes."""

    FORWARD = "F"
    BACKWARD = "B"
    """Both gradients."""
    INPUT = "I"
    """The gradient that is sent back, alone."""
    WEIGHT = "W"
    """Those of the weights, later."""


class Schedule(StrEnum):
    """Values of `--schedule`."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    ZERO_BUBBLE = "zero-bubble"

    @property
    def takes_stages(self) -> bool:
        """Whether a rank may run several stages, and torch runs it by a list of actions."""
        return self in (Schedule.INTERLEAVED, Schedule.ZERO_BUBBLE)

    @property
    def torch_class(self) -> str:
        """Its class in torch.distributed.pipelining."""
        return {
            Schedule.GPIPE: "ScheduleGPipe",
            Schedule.ONE_F_ONE_B: "Schedule1F1B",
            Schedule.INTERLEAVED: "ScheduleInterleaved1F1B",
            Schedule.ZERO_BUBBLE: "ScheduleInterleavedZeroBubble",
        }[self]


@dataclass(frozen=True, slots=True)
class Action:
    """One computation of one rank."""

    kind: Kind
    stage: int
    """Of the whole pipeline."""
    micro_batch: int


def refused(schedule: Schedule, ranks: int, local: int, micro_batches: int) -> str | None:
    """Why torch's schedule cannot run so, in one line; None where it can."""
    if local > 1 and not schedule.takes_stages:
        return f"{schedule} runs one stage on each rank: {local} virtual stages need --schedule interleaved"
    if schedule is Schedule.INTERLEAVED and local == 1:
        return "interleaved needs several stages on each rank: --vpp 2 or more"
    if schedule is Schedule.ONE_F_ONE_B and micro_batches < ranks:
        return (
            f"torch's Schedule1F1B needs as many micro batches as stages: {micro_batches} of {ranks};"
            f" give --grad-accum {ranks} or more, or --schedule gpipe"
        )
    rounds = max(1, micro_batches // ranks)
    if schedule.takes_stages and micro_batches % rounds:
        return (
            f"torch's {schedule.torch_class} needs a multiple of {rounds} micro batches, one for each round of {ranks}"
            f" stages, not {micro_batches}: give --grad-accum {ranks * ceil_div(micro_batches, ranks)}"
        )
    return None


def actions(schedule: Schedule, rank: int, ranks: int, local: int, micro_batches: int) -> tuple[Action, ...]:
    """What one rank computes, first to last, in one step of `micro_batches`, with `local` stages on each rank."""
    if schedule is Schedule.GPIPE:
        return (
            *(Action(Kind.FORWARD, rank, index) for index in range(micro_batches)),
            *(Action(Kind.BACKWARD, rank, index) for index in range(micro_batches)),
        )
    if schedule is Schedule.ONE_F_ONE_B:
        return tuple(_one_f_one_b(rank, ranks, micro_batches))
    return tuple(_interleaved(schedule, rank, ranks, local, micro_batches))


def _one_f_one_b(rank: int, ranks: int, micro_batches: int) -> Iterator[Action]:
    """A backward as soon as the last stage allows it; forwards between them while there are some left."""
    ahead = min(micro_batches, ranks - rank)
    for index in range(ahead):
        yield Action(Kind.FORWARD, rank, index)
    for index in range(micro_batches):
        yield Action(Kind.BACKWARD, rank, index)
        if ahead + index < micro_batches:
            yield Action(Kind.FORWARD, rank, ahead + index)


def _interleaved(schedule: Schedule, rank: int, ranks: int, local: int, micro_batches: int) -> Iterator[Action]:
    """Rounds of micro batches through a rank's stages, first to last forward and last to first backward."""
    splits = schedule is Schedule.ZERO_BUBBLE
    in_round = micro_batches // max(1, micro_batches // ranks)
    total = micro_batches * local
    ahead = min((local - 1) * in_round + (1 if splits else 2) * (ranks - 1 - rank), total)
    forwards, backwards, weights = [0] * local, [0] * local, [0] * local

    def following(counts: list[int], kind: Kind, place: int) -> Action:
        counts[place] += 1
        return Action(kind, place * ranks + rank, counts[place] - 1)

    def backward_place(number: int) -> int:
        return local - 1 - (number // in_round) % local

    done = 0
    for number in range(total + ahead):
        if number < total:
            yield following(forwards, Kind.FORWARD, (number // in_round) % local)
        if number >= ahead:
            back = number - ahead
            yield following(backwards, Kind.INPUT if splits else Kind.BACKWARD, backward_place(back))
            if splits and back >= rank:
                yield following(weights, Kind.WEIGHT, backward_place(done))
                done += 1
    while splits and done < total:
        yield following(weights, Kind.WEIGHT, backward_place(done))
        done += 1


def in_flight(order: tuple[Action, ...]) -> int:
    """Most micro batches, over all stages of a rank, whose forward ran and whose backward has not ended."""
    last = Kind.WEIGHT if any(action.kind is Kind.WEIGHT for action in order) else Kind.BACKWARD
    most = standing = 0
    for action in order:
        standing += (action.kind is Kind.FORWARD) - (action.kind is last)
        most = max(most, standing)
    return most
