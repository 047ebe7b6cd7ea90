"""A model of a job that generates by itself: transformers' `generate` of one batch, whole on its device."""

from dataclasses import dataclass, field, replace
from typing import Any

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.generation import prepare as prepare_generation
from gpu_plan.planner.job.prepared import Openers
from gpu_plan.planner.memory.together import Window, after_load, window_of
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.several.given import PhaseGiven
from gpu_plan.planner.speed.model import StepTime
from gpu_plan.planner.strategy.generation.layout import whole
from gpu_plan.planner.trace.events import ParameterInfo, StepTrace
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.precisions import PRECISIONS, Precision


@dataclass(slots=True, kw_only=True)
class Generator:
    """Generations of one model."""

    request: Request
    cluster: Cluster
    source: ModelSource
    precision: Precision
    note: Note
    openers: Openers
    _kept: dict[tuple[int, int, int], tuple[Window, StepTime, StepTime]] = field(default_factory=dict)

    def __call__(self, phase: PhaseGiven, rows: int) -> Window:
        """What `rows` prompts take until their last token, beside the weights."""
        return self._of(phase, rows)[0]

    def times(self, phase: PhaseGiven, rows: int) -> tuple[StepTime, StepTime]:
        """Of the pass over the prompts, and of one token more of each."""
        return self._of(phase, rows)[1:]

    def on(self, cluster: Cluster) -> "Generator":
        """The same on other devices."""
        return self if cluster == self.cluster else replace(self, cluster=cluster, _kept={})

    def _of(self, phase: PhaseGiven, rows: int) -> tuple[Window, StepTime, StepTime]:
        key = (phase.prompt_len, phase.completion_len, rows)
        if key not in self._kept:
            self._kept[key] = self._generated(phase, rows)
        return self._kept[key]

    def _generated(self, phase: PhaseGiven, rows: int) -> tuple[Window, StepTime, StepTime]:
        words = {
            "task": "infer",
            "context": str(phase.seq_len),
            "new-tokens": str(phase.completion_len),
            "batch": str(rows),
            "precision": stored_as(self.precision.compute_dtype),
        }
        inner = replace(self.request, words=tuple(words.items()), settings=(), pinned=False)
        task: Any = prepare_generation(inner, self.cluster, self.source, self.note, self.openers).task
        judged = task.evaluator.judge(whole(self.cluster.world_size))
        return window_of(judged.run, 1, after_load(judged.run)), judged.times.prefill, judged.times.decode


def stored_as(dtype: str) -> str:
    """The precision of weights that are all of a torch dtype."""
    return next(one.name for one in PRECISIONS.values() if one.generates and one.dtype == dtype)


def cast_bytes(trace: StepTrace, regime: Regime) -> int:
    """Copies that autocast makes of fp32 weights and keeps until a forward pass is over; 0 where it casts none.

    pytorch aten/src/ATen/autocast_mode.cpp: cached_cast keeps the 16-bit copy of every fp32 leaf that requires a
    gradient, under no_grad too; an embedding's lookup casts nothing, unless a product takes the same weight.
    """
    if regime.autocast is None:
        return 0
    return sum(2 * one.numel for one in trace.parameters if _is_cast(one, trace, regime))


def _is_cast(one: ParameterInfo, trace: StepTrace, regime: Regime) -> bool:
    tied = trace.layout.input_embedding == trace.layout.output_embedding or trace.layout.output_embedding is None
    looked_up = one.module == trace.layout.input_embedding and not tied
    return one.trainable and len(one.shape) > 1 and regime.of(one) == "float32" and not looked_up
