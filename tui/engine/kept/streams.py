"""What strategies made of traces, kept for every configuration that asks the same of them."""

from collections import OrderedDict
from dataclasses import fields, replace

from gpu_plan.planner.plain.recent import Recent
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator
from gpu_plan.planner.search.training.piped.step import Kept
from gpu_plan.planner.strategy.base import RankPlan
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.provider import Provider
from gpu_plan.planner.workload.training import Workload

KEPT_BYTES = 192 * 2**20
"""Of arrays in the streams that are kept, at most; the newest stays whatever it takes."""

_PIPELINES = 3
"""Of one job: each has a stream for each of its ranks."""

Key = tuple[object, ...]


class StreamCache:
    """Plans of ranks by what they were made of; those not used for longest are forgotten."""

    def __init__(self, room: int = KEPT_BYTES) -> None:
        self._room = room
        self._kept: OrderedDict[Key, tuple[RankPlan, int]] = OrderedDict()
        self._taken = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key) -> RankPlan | None:
        """What is kept under `key`, and from now on the last to be forgotten."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def put(self, key: Key, plan: RankPlan) -> None:
        """Keeps one more."""
        size = sum(_array_bytes(rank) for rank in (plan, *plan.other_ranks))
        self._kept[key] = (plan, size)
        self._taken += size
        while self._taken > self._room and len(self._kept) > 1:
            _, (_, gone) = self._kept.popitem(last=False)
            self._taken -= gone


class PipelineCache:
    """Ranks of pipelines, for every configuration that asks the same of one provider's traces."""

    def __init__(self) -> None:
        self._kept: Recent[tuple[Provider, Kept]] = Recent()

    def get(self, provider: Provider, gpus: str, workload: Workload) -> Kept:
        """What is kept of one job's pipelines, the last few of them. A provider is kept beside, so that no other has
        its id."""
        key = (id(provider), gpus, _unsearched(workload))
        _, found = self._kept.get(key, lambda: (provider, {}))
        while len(found) > _PIPELINES:
            del found[next(iter(found))]
        return found


def _array_bytes(plan: RankPlan) -> int:
    stream = plan.stream
    arrays = (
        stream.event_sign, stream.event_tensor, stream.event_segment, stream.event_in_backward, stream.fixed,
        stream.per_sample, stream.cuda_stream, stream.category,
    )  # fmt: skip
    # Beside them two words for each storage that the strategy placed.
    return sum(array.nbytes for array in arrays) + 16 * len(stream.labels)


class KeptEvaluator(Evaluator):
    """An `Evaluator` that looks among kept streams before it asks a strategy, which knows its `RankContext` alone."""

    kept_streams: StreamCache

    def kept_plan(self, family: Family, batch: Batch, trace: StepTrace) -> RankPlan | None:
        """What the strategy makes of the trace, where that is kept."""
        return self.kept_streams.get(self._key(family, batch, trace))

    def _key(self, family: Family, batch: Batch, trace: StepTrace) -> Key:
        context = self.context(family, min(batch.accumulation_steps, 2), trace)
        asked = tuple(getattr(context, field.name) for field in fields(context) if field.name != "trace")
        # A plan holds its trace, so that the id stays its own for as long as the plan is kept.
        return (family.strategy.name, id(trace), asked, _unsearched(self.workload))

    def _plan(self, family: Family, batch: Batch, trace: StepTrace) -> RankPlan:
        key = self._key(family, batch, trace)
        found = self.kept_streams.get(key)
        if found is None:
            found = super()._plan(family, batch, trace)
            self.kept_streams.put(key, found)
        return found


def _unsearched(workload: Workload) -> Workload:
    """What a plan's notes may tell of beside its context."""
    return replace(
        workload, micro_batch=None, global_batch=None, grad_accum=None, strategy=None, offload=None,
        checkpointing=None, basis=(),
    )  # fmt: skip
