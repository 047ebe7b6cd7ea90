"""The least time and memory that ranks computing one copy together could take, from the trace of the whole model.

A degree takes a trace of its own, which costs seconds; what cannot come first is not traced. Nothing here is a guess:
of t ranks each issues every operator at least once, computes at least 1/t of it and moves at least 1/t of its bytes,
all of it in the modules that the class's plan leaves whole, holds at least 1/t of what one rank holds that computes the
copy alone (of what is sharded as much, but for rows that are padded: `rows`), and waits for the sums that the plan
names.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.dtypes import element_bits
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.least.rows import Cut, cut_of
from gpu_plan.planner.speed.model import Collective, Phase
from gpu_plan.planner.strategy.known import unsharded
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.parallel.plans import (
    DISPATCHES,
    EXPERT,
    TENSOR,
    Sums,
    dispatching,
    divides,
    divides_experts,
    handed_over,
    parallel_plan,
    replicated,
    sums_of,
    undivided,
    undivided_experts,
)
from gpu_plan.planner.trace.shipped.needed import NotTraceableError


@dataclass(frozen=True, slots=True, kw_only=True)
class Least:
    """What a family takes at the very least."""

    seconds: float | None
    """Of one sample, over the micro batches that could fit; None where none could."""
    bytes: int
    """Of the device, at the smallest micro batch that was looked at."""
    spared: float | None = None
    """Seconds of one sample that the engine's arithmetic spares beside whole copies; None: no device holds one."""

    @property
    def compared_seconds(self) -> float:
        """The least of `Judgement.compared_seconds`; 0 where no batch could fit."""
        return (self.seconds or 0.0) + (self.spared or 0.0)


@dataclass(slots=True)
class Bounds:
    """Bounds of one evaluator's families; parts of traces are kept."""

    evaluator: Evaluator
    _parts: dict[tuple[str, tuple[int, ...], int], StepTrace] = field(default_factory=dict)
    _sums: Sums | None = None
    _handed: tuple[int, int] | None = None
    _known: dict[Family, Least] = field(default_factory=dict)
    _cuts: dict[tuple[Family, int], Cut] = field(default_factory=dict)

    def know(self, family: Family, least: Least) -> None:
        """Takes in what another process found of the job's cuts."""
        self._known[family] = least

    def splits(self, degree: int) -> bool:
        """Whether the class has a plan, known without running it, that so many ranks can follow."""
        config = self.evaluator.config
        return config is not None and bool(self._plan) and divides(config, degree)

    def shares_experts(self, ranks: int) -> bool:
        """Whether the class has a plan to hand tokens over, known without running it, and so many ranks get whole
        experts."""
        config = self.evaluator.config
        plan = parallel_plan(_type_of(config), EXPERT) or {}
        return config is not None and DISPATCHES in plan.values() and divides_experts(config, ranks)

    def why_not(self, family: Family) -> str | None:
        """Why ranks get no whole heads or experts, as far as the config tells; None where nothing is in the way."""
        config, name = self.evaluator.config, self.evaluator.provider.spec().class_name
        if config is None:
            return None
        degrees = ((family.tensor_parallel, undivided), (family.expert_parallel, undivided_experts))
        for ranks, tells in degrees:
            what = tells(config, ranks) if ranks > 1 else None
            if what is not None:
                return f"{name} has {what}, which {ranks} GPUs do not divide"
        return None

    def least(self, family: Family, cuts: list[Batch]) -> Least:
        """Over the cuts, smallest micro batch first. Traces the whole model at most, never a part."""
        if family in self._known:
            return self._known[family]
        alone, degree, tokens = self.alone(family), _shared(family), family.context_parallel > 1
        if _apart(family):
            # Of even choices every rank computes as much as it does alone, moves at least its part of the bytes, waits
            # for the tokens that it hands over and gets, and has at least its part of what it holds alone.
            of: Callable[[Batch, StepJudgement], float] = partial(self._seconds_apart, alone, degree)
        else:
            of = partial(self._seconds, alone, degree, tokens=tokens)
        states = self._held(alone, degree, self.evaluator.judge_states(alone, cuts[0]))
        if states > self.evaluator.capacity_bytes:
            states = self.states(family, cuts[0])
        return self._over(alone, degree, cuts, of, states)

    def states(self, family: Family, batch: Batch) -> int:
        """Bytes of a device's states alone, and of what stands outside the allocator."""
        alone, degree = self.alone(family), _shared(family)
        columns = 1 if family.context_parallel > 1 else family.tensor_parallel
        return self._held(alone, degree, self.evaluator.judge_states(alone, batch), columns)

    def _over(
        self,
        alone: Family,
        ranks: int,
        cuts: list[Batch],
        seconds_of: Callable[[Batch, StepJudgement], float],
        states: int,
    ) -> Least:
        """The least of all cuts, each known from what a rank alone takes and does."""
        if states > self.evaluator.capacity_bytes:
            return Least(seconds=None, bytes=states)
        best: float | None = None
        spared: list[float] | None = None
        first: int | None = None
        for batch in cuts:
            try:
                judged = self.evaluator.judge_uncounted(alone, batch)
            except NotTraceableError:
                break  # larger than any shipped trace
            held = self._held(alone, ranks, judged)
            first = held if first is None else first
            if held > self.evaluator.capacity_bytes:
                break
            seconds = seconds_of(batch, judged)
            best = seconds if best is None else min(best, seconds)
            beside = judged.spared()
            if beside is not None:
                spared = [*(spared or []), beside[0] if beside else 0.0]
        return Least(seconds=best, bytes=first or states, spared=None if spared is None else min(spared))

    def _seconds_apart(self, alone: Family, ranks: int, batch: Batch, judged: StepJudgement) -> float:
        """Of one sample."""
        evaluator, trace = self.evaluator, judged.plan.stream.trace
        name = (f"{evaluator.variant(alone).key()} experts", trace.samples, ranks)
        if name not in self._parts:
            # As many rows come in as a rank has of its own; of the weights that products read it holds a part.
            experts = self._experts()
            places = [place for place, module in enumerate(trace.modules) if _under_experts(module, experts)]
            products = (trace.op_flops_fixed > 0) | (trace.op_flops_per_sample > 0)
            share = np.where(products & np.isin(trace.op_module, places), 1.0 / ranks, 1.0)
            self._parts[name] = replace(
                trace,
                op_bytes_fixed=trace.op_bytes_fixed * share,
                op_bytes_per_sample=trace.op_bytes_per_sample * share,
            )
        work = replace(
            evaluator.work(alone, batch, trace, judged.plan),
            trace=self._parts[name],
            collectives=self._exchanges(ranks, batch.micro_batch * trace.tokens_per_sample),
        )
        step = evaluator.speed.step_time(work, evaluator.cluster).step_seconds
        return step / (batch.micro_batch * batch.accumulation_steps * evaluator.cluster.world_size)

    def _experts(self) -> frozenset[str]:
        """Modules to which tokens are handed over."""
        plan = parallel_plan(_type_of(self.evaluator.config), EXPERT) or {}
        return frozenset(dispatching(self.evaluator.provider.spec(), plan))

    def _exchanges(self, ranks: int, tokens: int) -> tuple[Collective, ...]:
        """The all-to-alls of one micro step, of which the computation waits for each: there and back, both ways."""
        if self._handed is None:
            config = self.evaluator.config or {}
            plan = parallel_plan(_type_of(config), EXPERT) or {}
            self._handed = handed_over(self.evaluator.provider.spec(), config, plan)
        layers, elements = self._handed
        size = element_bits(self.evaluator.workload.precision.compute_dtype) // 8
        phases: tuple[Phase, ...] = ("forward", "backward")
        return tuple(
            Collective(
                kind="all_to_all",
                bytes=elements * tokens * size,
                count=2 * layers,
                phase=phase,
                per="micro_step",
                overlap=False,
                ranks=ranks,
                axis="expert",
            )
            for phase in phases
            if layers and elements
        )

    def alone(self, family: Family) -> Family:
        """The family that it comes to where each rank computes its own copy, or whole samples."""
        if family.context_parallel > 1:
            return replace(family, context_parallel=1)
        name = family.strategy.traits.untensored or unsharded(1).name
        return replace(family, strategy=STRATEGIES[name], tensor_parallel=1, expert_parallel=1)

    def _held(self, alone: Family, degree: int, judged: StepJudgement, columns: int = 1) -> int:
        """What is sharded over all ranks already, a degree makes no smaller but where rows are padded: of states alone
        nothing else is divided."""
        part = judged.profile.peak_allocated_bytes
        if not (judged.states_only and alone.strategy.traits.shards_model):
            part //= degree
        elif columns > 1 and (cut := self._cut(alone, columns)).is_less:
            part = min(part, cut.peak_bytes(judged.batch.micro_batch))
        return part + sum(term.low for term in judged.terms)

    def _cut(self, alone: Family, columns: int) -> Cut:
        if (alone, columns) not in self._cuts:
            self._cuts[alone, columns] = cut_of(self.evaluator, alone, columns)
        return self._cuts[alone, columns]

    def _seconds(self, alone: Family, degree: int, batch: Batch, judged: StepJudgement, *, tokens: bool) -> float:
        """Of one sample. Ranks that share its `tokens` compute at least their part of every operator, a ring's of
        attention more, step what they step anyway, and wait for nothing that is counted here."""
        evaluator, trace = self.evaluator, judged.plan.stream.trace
        optimizer = judged.plan.optimizer_work
        if not tokens:
            part = self._cut(alone, degree).stepped if alone.strategy.traits.shards_model else 1 / degree
            touched = int(optimizer.parameter_bytes_read_written * part)
            optimizer = replace(
                optimizer, parameter_bytes_read_written=touched, elements=int(optimizer.elements * part)
            )
        copies = evaluator.cluster.world_size // degree
        work = replace(
            evaluator.work(alone, batch, trace, judged.plan),
            trace=self._part(trace, degree, evaluator.variant(alone).key(), tokens=tokens),
            collectives=() if tokens else tuple(self._waits(degree, batch.micro_batch * trace.tokens_per_sample)),
            optimizer=optimizer,
            data_parallel=copies,
        )
        step = evaluator.speed.step_time(work, evaluator.cluster).step_seconds
        return step / (batch.micro_batch * batch.accumulation_steps * copies)

    def _part(self, trace: StepTrace, degree: int, key: str, *, tokens: bool) -> StepTrace:
        name = (f"{key} tokens" if tokens else key, trace.samples, degree)
        if name not in self._parts:
            layout = trace.layout
            shared = tokens or self._cuts_sequence
            whole = set() if shared else replicated(trace.modules, layout.blocks, layout.final_norm, self._plan)
            places = [place for place, module in enumerate(trace.modules) if module in whole]
            left = np.isin(trace.op_module, places) if shared else np.isin(trace.op_module, places) | _of_losses(trace)
            share = np.where(left, 1.0, 1.0 / degree)
            self._parts[name] = replace(
                trace,
                op_flops_fixed=trace.op_flops_fixed * share,
                op_flops_per_sample=trace.op_flops_per_sample * share,
                op_bytes_fixed=trace.op_bytes_fixed * share,
                op_bytes_per_sample=trace.op_bytes_per_sample * share,
            )
        return self._parts[name]

    @property
    def _cuts_sequence(self) -> bool:
        return self.evaluator.workload.stack.traits.cuts_sequence

    @property
    def _plan(self) -> Mapping[str, str]:
        return parallel_plan(_type_of(self.evaluator.config), TENSOR) or {}

    def _waits(self, degree: int, tokens: int) -> list[Collective]:
        """The all-reduces of one micro step that the class's plan names; none is counted of a stack with its own."""
        if self._cuts_sequence:
            return []
        if self._sums is None:
            self._sums = sums_of(self.evaluator.provider.spec(), self._plan)
        size = element_bits(self.evaluator.workload.precision.compute_dtype) // 8
        named: tuple[tuple[Phase, tuple[int, ...]], ...] = (
            ("forward", self._sums.forward),
            ("backward", self._sums.backward),
        )
        return [
            Collective(
                kind="all_reduce",
                bytes=elements * tokens * size,
                count=count,
                phase=phase,
                per="micro_step",
                overlap=False,
                ranks=degree,
                axis="tensor",
            )
            for phase, all_of_it in named
            for elements, count in Counter(all_of_it).items()
        ]


def _apart(family: Family) -> bool:
    """Whether ranks hold whole experts each, of more than compute a copy together."""
    return family.expert_parallel > family.tensor_parallel * family.context_parallel


def _shared(family: Family) -> int:
    """Ranks that a copy, its samples or its experts are shared out to."""
    return max(family.expert_parallel, family.tensor_parallel * family.context_parallel)


def _of_losses(trace: StepTrace) -> NDArray[np.bool_]:
    """Operators that the model itself runs, no products among them: its loss, which every rank computes of all logits.

    Whatever style a head has, each rank gets them whole: transformers 5.23 distributed/tensor_parallel.py:
    `colwise_gather_output` puts out what is replicated, `rowwise_split_input` sums.
    """
    own = [place for place, module in enumerate(trace.modules) if not module]
    products = (trace.op_flops_fixed > 0) | (trace.op_flops_per_sample > 0)
    found: NDArray[np.bool_] = np.isin(trace.op_module, own) & ~products
    return found


def _under_experts(module: str, experts: frozenset[str]) -> bool:
    return module in experts or any(module[:place] in experts for place, letter in enumerate(module) if letter == ".")


def _type_of(config: object) -> str | None:
    named = config.get("model_type") if isinstance(config, dict) else None
    return named if isinstance(named, str) else None
