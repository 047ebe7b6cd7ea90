"""Megatron's workers as models of a job: what one rank of the pipeline does in phases other than its update.

verl 0.8.0.dev (b178a3cd): verl/workers/actor/megatron_actor.py (forward_backward_batch with forward_only: the
pipeline's own schedule, in evaluation mode, so that nothing is run again), verl/workers/megatron_workers.py
(_build_model_optimizer: a reference is not wrapped in DDP, so that each weight is a storage of its own;
compute_log_prob: the actor's with their entropies, a reference's without).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gpu_plan.planner.megatron import schedules, stages
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.megatron.part import DUMMY, Part
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.memory.together import Storages, Window, made, rest_of, second_iteration, window_of
from gpu_plan.planner.options.several.given import PhaseGiven
from gpu_plan.planner.pipeline.places import PipelineRank
from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.pipeline.stages import StageCut
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.search.training.megatron import judge as megatron
from gpu_plan.planner.search.training.piped.times import StageTime, stage_time
from gpu_plan.planner.speed.model import StepTime
from gpu_plan.planner.strategy.base import place_buffers
from gpu_plan.planner.strategy.megatron.forward import ForwardBuilder, forwards
from gpu_plan.planner.strategy.megatron.layouts import layouts
from gpu_plan.planner.strategy.pipeline.rank import joined
from gpu_plan.planner.trace.events import Category, StepTrace
from gpu_plan.planner.units import ceil_div
from gpu_plan.planner.workload.training import Checkpointing

if TYPE_CHECKING:
    from gpu_plan.planner.megatron.losses import CrossEntropy

_HALF = 2
_BUFFER = 2 * 2**30
"""mbridge (10cb17f), core/bridge.py: export_weights_buffer_max_size_bytes."""
_KEPT = 16


@dataclass(slots=True, kw_only=True)
class Passes:
    """Passes of one model's stages without gradients, and what its stages hold."""

    evaluator: Any
    trained: bool
    values: bool = False
    """Whether it gives a number for each token, as a critic does."""
    _kept: dict[tuple[object, ...], Window] = field(default_factory=dict)

    def own(self, family: Family) -> Family:
        """The searched family as this model has it: the same degrees, what is run again and the loss its own."""
        if not self.values or family.layout is None:
            return family
        workload, degrees = self.evaluator.workload, _degrees(family.layout)
        checkpointing = workload.checkpointing or Checkpointing.NONE
        every = layouts(workload, self.evaluator.cluster, checkpointing)
        alike = next(one for one in every if _degrees(one) == degrees)
        return replace(family, checkpointing=checkpointing, layout=replace(alike, cross_entropy="verl-value"))

    def iteration(self, family: Family, batch: Batch, rank: int) -> Window:
        """What a rank makes and gives back in an iteration that trains the model."""
        stream = self._stream(family, batch, rank)
        return window_of(stream, batch.micro_batch, second_iteration(stream))

    def rest(self, family: Family, batch: Batch, rank: int) -> Storages:
        """What stands of it between iterations."""
        return rest_of(self._stream(family, batch, rank), batch.micro_batch)[1]

    def _stream(self, family: Family, batch: Batch, rank: int) -> RankStream:
        return megatron.ranks_of(self.evaluator, self.own(family), batch)[0][rank].plan.stream

    def step(self, family: Family, batch: Batch) -> StepTime:
        """Of an iteration that trains it."""
        found: StepTime = self.evaluator.judge_uncounted(self.own(family), batch).time
        return found

    def window(self, layout: Layout, family: Family, phase: PhaseGiven, rows: int, samples: int, rank: int) -> Window:
        """What a rank makes and gives back in one round over a rank's `samples`, `rows` of them at a time."""
        count = min(ceil_div(samples, rows), layout.pipeline + 2)  # what stands is the same from then on
        key = (layout, phase.seq_len, rows, count, rank)
        if key not in self._kept:
            while len(self._kept) >= _KEPT * layout.pipeline:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = self._made(layout, family, phase, rows, count, rank)
        return self._kept[key]

    def _made(self, layout: Layout, family: Family, phase: PhaseGiven, rows: int, count: int, rank: int) -> Window:
        cut, trace = self._stage(layout, family, phase.seq_len, rows, rank)
        whole, spans = joined([(rank, cut, trace)])
        place = PipelineRank(
            rank=rank,
            ranks=layout.pipeline,
            schedule=Schedule.ONE_F_ONE_B,
            order=forwards(schedules.actions(layout, rank, count)),
            micro_batches=count,
            spans=spans,
        )
        builder = ForwardBuilder(whole, place)
        place_buffers(builder)
        stream = builder.build()
        return window_of(stream, rows, second_iteration(stream))

    def _stage(self, layout: Layout, family: Family, seq_len: int, rows: int, stage: int) -> tuple[StageCut, StepTrace]:
        model = megatron.architecture(self.evaluator)
        cut = stages.cuts(model.layers, layout)[stage]
        loss: CrossEntropy = "verl-value" if self.values else "verl-entropy" if self.trained else "verl"
        if layout.cross_entropy == "verl-fused" and not self.values:
            loss = "verl-fused"
        own = replace(layout, recompute="none", cross_entropy=loss)
        variant = replace(
            self.evaluator.variant(family),
            seq_len=seq_len,
            checkpointing=Checkpointing.NONE,
            checkpoint_every=1,
            checkpoints_on_host=False,
            compilation=None,
            evaluation="log-probabilities",
            part=Part(model=model, layout=own, cut=cut),
        )
        return cut, self.evaluator.provider.trace(variant, rows)

    def weights(self, layout: Layout, family: Family, seq_len: int, rank: int) -> Storages:
        """What stands of a model without an optimizer on a rank."""
        trace = self._stage(layout, family, seq_len, 1, rank)[1]
        parameters = [(one.numel * _HALF, Category.PARAMETERS, "weight") for one in trace.parameters]
        return made(
            [
                *parameters,
                *(
                    (size, Category.BUFFERS, "buffer")
                    for name, size in trace.buffer_bytes
                    if not name.startswith(DUMMY)
                ),
            ]
        )

    def times(self, layout: Layout, family: Family, phase: PhaseGiven, rows: int) -> tuple[StageTime, ...]:
        """Of one micro batch through each stage."""
        batch = Batch(micro_batch=rows, accumulation_steps=1)
        found: dict[int, StageTime] = {}
        times = []
        for stage in range(layout.pipeline):
            cut, trace = self._stage(layout, family, phase.seq_len, rows, stage)
            if id(trace) not in found:
                calls = megatron.calls_of(self.evaluator, layout, trace, cut, batch, phase.seq_len)
                found[id(trace)] = stage_time(self.evaluator, family, batch, trace, calls)
            times.append(found[id(trace)])
        return tuple(times)


def _degrees(layout: Layout) -> tuple[int, ...]:
    return layout.tensor, layout.pipeline, layout.context, layout.expert


def exported(layout: Layout, weights: int) -> Storages:
    """What a rank holds while the weights, so many bytes in 16 bits, go to the engine tensor by tensor.

    mbridge (10cb17f), core/bridge.py: _iter_all_ranks_named_params, core/util.py: bucketed_pp_broadcast and
    bucketed_all_gather_into_tensor: a bucket of another stage's parameters beside a buffer of the size of a bucket; a
    buffer that is sent, one that is gathered into, and the gathered parameters.
    """
    shared = layout.tensor if layout.tensor > 1 else max(layout.expert, layout.expert_tensor)
    stage = weights // (layout.pipeline * shared)
    sizes = []
    if layout.pipeline > 1:
        sizes += [(min(_BUFFER, stage), "parameters of another stage"), (_BUFFER, "buffer of a broadcast")]
    if shared > 1:
        sent = _BUFFER // shared
        gathered = min(sent, stage) * shared
        sizes += [(sent, "buffer that is sent"), (sent * shared, "buffer that is gathered into")]
        sizes += [(gathered, "gathered parameters")]
    return made((size, Category.COMMUNICATION, label) for size, label in sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRank:
    """One rank of the pipeline under one candidate."""

    family: Family
    rank: int

    @property
    def layout(self) -> Layout:
        """How the job shares its model out."""
        assert self.family.layout is not None
        return self.family.layout


def staged_rank(judgement: StepJudgement) -> StagedRank | None:
    """The rank of the pipeline that a candidate was judged by, the one that peaks highest; None without Megatron."""
    if judgement.family.layout is None or judgement.piped is None:
        return None
    peaks = [stage.peak_allocated_bytes for stage in judgement.piped.stages]
    return StagedRank(family=judgement.family, rank=peaks.index(max(peaks)))


def other_streams(evaluator: Any, judgement: StepJudgement) -> Iterator[RankStream]:
    """Of the other ranks of the pipeline, with all models; none without Megatron."""
    worst = staged_rank(judgement)
    if worst is None:
        return
    family, batch = judgement.family, judgement.batch
    for one in megatron.ranks_of(evaluator, family, batch)[0]:
        if one.place.rank != worst.rank:
            yield evaluator.beside_others(family, batch, one).plan.stream


def own_rest(evaluator: Any, family: Family, batch: Batch, rank: int) -> Storages:
    """What stands between iterations of the trained model by itself, on a rank."""
    ranks = megatron.ranks_of(evaluator, family, batch)[0]
    return rest_of(ranks[rank].plan.stream, batch.micro_batch)[1]
