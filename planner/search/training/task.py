"""Training, as the search sees a task."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property

from gpu_plan.planner.context.rules import LONG, divides_heads, splits_tokens, why_uncut, why_whole
from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.kernels import sinks
from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.plan.figures import HostFigures, SpeedFigures, StrategyChoice
from gpu_plan.planner.search.ranking.rules import Ranking, standing
from gpu_plan.planner.search.shown.sections import Details
from gpu_plan.planner.search.task import Explored, Rejected
from gpu_plan.planner.search.training.candidates import (
    Batch,
    Family,
    batches,
    divides,
    families,
    first_batches,
    sharing,
)
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.explore import explored
from gpu_plan.planner.search.training.finer import (
    accumulated,
    by_blocks,
    computes_less,
    expanded,
    from_size,
    grown,
    sparser,
    too_slow,
    unresharded,
)
from gpu_plan.planner.search.training.least import stages as piped_bounds
from gpu_plan.planner.search.training.least.alone import step_overflows, weights_overflow
from gpu_plan.planner.search.training.least.compute import least_of_a_sample
from gpu_plan.planner.search.training.least.megatron import hopeless as megatron_hopeless
from gpu_plan.planner.search.training.least.together import Bounds
from gpu_plan.planner.search.training.megatron import judge as megatron
from gpu_plan.planner.search.training.megatron.unasked import spread
from gpu_plan.planner.search.training.piped import judge as piped
from gpu_plan.planner.search.training.relaxed import relaxed
from gpu_plan.planner.search.training.told import figures
from gpu_plan.planner.search.training.whole import holds_whole
from gpu_plan.planner.strategy.pipeline.cuts import Pipeline
from gpu_plan.planner.strategy.saved_files import SavedFiles
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.units import format_gib
from gpu_plan.planner.workload.prefer import Prefer
from gpu_plan.planner.workload.training import Attention, Checkpointing, Workload


@dataclass(frozen=True)
class TrainingTask:
    """A training job: families are a strategy, what it offloads and how it checkpoints; sizes are micro batches."""

    evaluator: Evaluator
    cuts: list[Batch] = field(init=False, compare=False)
    """Ways to cut the global batch, smallest micro batch first; UsageError where it does not divide. Of the copies that
    every rank, or every group of `--tp`, computes."""
    _failed: list[StepJudgement] = field(default_factory=list, init=False, compare=False, repr=False)
    """Layouts of an engine's own model whose smallest micro batch did not fit, as they were looked at."""

    def __post_init__(self) -> None:
        stages = self._workload.pipeline_parallel or 1
        cuts = first_batches(self._workload, self._cluster.world_size, self._sharing, stages, self._sharings)
        object.__setattr__(self, "cuts", cuts)

    @property
    def _sharing(self) -> int:
        """Ranks that compute the same samples, as far as degrees were given."""
        return sharing(self._workload)

    def _sharings(self) -> Iterator[int]:
        """Ranks that compute the same samples, by every degree that is searched."""
        return (family.copy_ranks for family in families(self._workload, self._cluster, self._can_checkpoint))

    @cached_property
    def _must_share(self) -> bool:
        """Whether a step has fewer samples, or others, than every rank could take: some compute them together."""
        return not divides(self._workload, self._cluster.world_size // self._sharing)

    def cuts_of(self, family: Family) -> list[Batch]:
        """The same for the copies of one family. UsageError where they do not divide the global batch."""
        if family.batch is not None:
            return [family.batch]
        stages = 1 if family.pipeline is None else family.pipeline.degree
        stages = stages if family.layout is None else family.layout.pipeline
        if family.copy_ranks == self._sharing and family.layout is None and not self._must_share:
            return from_size(self.cuts, family.from_size)
        cuts = batches(self._workload, self._cluster.world_size // family.copy_ranks, stages)
        return from_size(cuts, family.from_size)

    def families(self) -> Iterator[Family]:
        """As the options leave them, simplest first. UsageError for checkpointing that the model does not have.

        Degrees that nobody asked for are those that the model's class can be split by, and that its job can be run in.
        """
        known = families(self._workload, self._cluster, self._can_checkpoint)
        for family in sorted(self._sensible(known), key=self._turn):
            if family.layout is not None:
                yield family
            elif family.pipeline is not None:
                if self._can_be_piped(family.pipeline, family):
                    yield family
            elif family.context_parallel > 1:
                if self._cut or self._may_be_cut(family):
                    yield family
            elif self._may_be_shared(family):
                yield family

    def _turn(self, family: Family) -> int:
        """What nobody asked for comes last: it is traced only where it could come first. Stages come behind the sharing
        of long samples, which is what long samples need: a cut takes a trace of every stage, a share one."""
        if family.context_parallel > 1 and not self._cut:
            return 1
        stages = family.pipeline is not None and not self._staged
        return 2 if stages and self._workload.seq_len >= LONG else 0

    def _may_be_shared(self, family: Family) -> bool:
        """Whether ranks compute a copy together, or hold experts each, because it was asked for or the class can."""
        if self._asked or (family.tensor_parallel == 1 and self._placed(family)):
            return True
        if family.tensor_parallel == 1:
            return self.bounds.shares_experts(family.expert_parallel)
        return self.bounds.splits(family.tensor_parallel)

    def _placed(self, family: Family) -> bool:
        """Whether experts lie where they were asked to, be it together."""
        return family.expert_parallel == 1 or self._workload.expert_parallel is not None

    def _sensible(self, known: Iterable[Family]) -> list[Family]:
        """Of a library's own model the layouts that it can run; the first of them all where it can run none, to say
        why."""
        families = list(spread(self.evaluator, known))
        shared = [family for family in families if family.layout is not None]
        able = [
            family
            for family in shared
            if family.layout is not None
            and divides(self._workload, self._cluster.world_size // family.copy_ranks)
            and megatron.refusal(self.evaluator, family.layout, self.cuts_of(family)) is None
        ]
        if shared and able and self._refused_at_all(able[0]):
            able = able[:1]
        return [family for family in families if family.layout is None] + (able or shared[:1])

    def _refused_at_all(self, family: Family) -> bool:
        """Whether a job is refused whatever its degrees."""
        trace = self.evaluator.provider.static_trace(self.evaluator.variant(family).regime)
        return family.strategy.refuses(self.evaluator.context(family, 1, trace)) is not None

    def finer(
        self,
        ranking: Ranking,
        plans: Sequence[StepJudgement],
        rejected: Sequence[Rejected[StepJudgement]] = (),
        others: Sequence[StepJudgement] = (),
    ) -> Iterator[Family]:
        """What is gathered stays; the allocator's segments grow; less of the layers is computed again, and a step takes
        several micro batches, unless the loop is the user's, to which nothing from outside says so."""
        families = list(self.families())
        yield from unresharded(self.evaluator, families, plans)
        yield from expanded(self.evaluator, ranking, plans, [*others, *(one.judgement for one in rejected)])
        if self._script is None:
            yield from sparser(self.evaluator, families, ranking, plans)
            yield from accumulated(self.evaluator, self._cluster.world_size, ranking, plans)

    def _can_be_piped(self, pipeline: Pipeline, family: Family) -> bool:
        """Whether a cut into stages is looked at: one that was asked for always, if only to say why it cannot be."""
        if self._undivided(family) is not None:
            return False
        if self._staged and (pipeline.schedule is Schedule.ONE_F_ONE_B or self._workload.schedule is not None):
            return True
        if not self._staged and not piped_bounds.can_be_cut(self.evaluator, pipeline.stages):
            return False
        return piped.refusal(self.evaluator, family, self.cuts_of(family)) is None

    def _may_be_cut(self, family: Family) -> bool:
        """Whether samples that nobody asked to share out are: of a model known to allow it, in few ways."""
        config, spec = self.evaluator.config, self.evaluator.provider.spec()
        if self._script is not None or config is None or not splits_tokens(spec.class_name, config):
            return False
        if not divides_heads(family.strategy.traits.context_parallel, family.context_parallel, config):
            return False
        if self._workload.seq_len >= LONG or self._must_share:
            return family.offload is Offload.NONE or family.context_parallel == self._cluster.gpus_per_node
        fullest = str(family.checkpointing) != "none" or not self._can_checkpoint
        return fullest and family.context_parallel == self._cluster.gpus_per_node

    @property
    def _cut(self) -> bool:
        """Whether somebody asked ranks to share samples."""
        return (self._workload.context_parallel or 1) > 1

    @property
    def _staged(self) -> bool:
        """Whether somebody asked for stages."""
        return self._workload.strategy is not None or self._workload.pipeline_parallel is not None

    @property
    def _asked(self) -> bool:
        """Whether somebody said how the model is spread."""
        return self._workload.strategy is not None or self._workload.tensor_parallel is not None

    def name(self, family: Family) -> str:
        """The strategy's title, with its degrees."""
        spread = max(family.copy_ranks, family.expert_parallel) > 1 or family.replicas is not None
        return family.title if spread else family.strategy.title

    def words_of(self, family: Family) -> str:
        """`FSDP2 × TP 2, full checkpointing`."""
        steps = "" if family.batch is None else f", {family.batch.accumulation_steps} micro batches a step"
        return f"{family.title}, {family.checkpointing_words}{steps}"

    def refusal(self, family: Family) -> str | None:
        """What the real implementation would say, before any step is traced."""
        if self._cluster.world_size % family.copy_ranks:
            return f"{family.copy_ranks} ranks that share a copy do not divide {self._cluster.world_size} GPUs"
        if (problem := self._undivided(family)) is not None:
            return problem
        if self._workload.attention is Attention.FLASH:
            problem = sinks.refusal(self.evaluator.provider.spec().model_type, self._cluster.gpu.compute_capability)
            if problem is not None:
                return problem
        trace = self.evaluator.provider.static_trace(self.evaluator.variant(family).regime)
        if family.layout is not None:
            problem = megatron.refusal(self.evaluator, family.layout, self.cuts_of(family))
            if problem is not None:
                return problem
        elif family.pipeline is not None:
            problem = piped.refusal(self.evaluator, family, self.cuts_of(family))
            if problem is not None:
                return problem
        if family.context_parallel > 1 and family.layout is None:
            method, length = family.strategy.traits.context_parallel, self._workload.seq_len
            problem = why_whole(self._workload, method) or why_uncut(length, family.context_parallel, method)
            if problem is not None:
                return f"--cp {family.context_parallel}: {problem}"
        if family.layout is None and (problem := self.bounds.why_not(family)) is not None:
            return problem
        return family.strategy.refuses(self.evaluator.context(family, self.cuts[0].accumulation_steps, trace))

    def _undivided(self, family: Family) -> str | None:
        """Why a step's samples cannot be shared out between a family's copies."""
        try:
            self.cuts_of(family)
        except UsageError as problem:
            return str(problem)
        return None

    def hopeless(self, family: Family, ranking: Ranking, plans: Sequence[StepJudgement]) -> str | None:
        """Of degrees and settings that nobody asked for: each takes a trace of its own, made if it might be first."""
        if family.layout is not None:
            return megatron_hopeless(self.evaluator, family, ranking, plans, self._failed)
        slow = too_slow(self.evaluator, family, self.cuts_of(family), ranking, plans)
        if slow is not None:
            return slow
        if self._called_for(family):
            return None
        return self._uncalled_for(family, ranking, plans) or self.beaten(family, ranking, plans)

    def _called_for(self, family: Family) -> bool:
        """Whether the way in which ranks share a copy was asked for, or they share none."""
        if family.context_parallel > 1:
            return self._cut
        if family.pipeline is not None:
            return self._staged
        return self._asked or (family.tensor_parallel == 1 and self._placed(family))

    def looked_at_anyway(self, family: Family) -> bool:
        """Whether `hopeless` leaves it whatever is known of others: it can be explored before them, beside them."""
        apart = family.layout is not None or family.pipeline is not None or family.batch is not None
        return not apart and self._called_for(family) and not computes_less(family)

    def bounded_first(self, family: Family) -> bool:
        """Whether `hopeless` asks for the least that ranks take which share a copy, or hold experts each."""
        shared = family.layout is None and family.pipeline is None and family.context_parallel == 1
        return shared and family.batch is None and not self._called_for(family) and not computes_less(family)

    def _uncalled_for(self, family: Family, ranking: Ranking, plans: Sequence[StepJudgement]) -> str | None:
        """Why degrees are not tried while plans without them fit."""
        if self._must_share or not any(standing(plan) == 0 for plan in plans):
            return None
        if family.context_parallel > 1:
            short, offloads = self._workload.seq_len < LONG, family.offload is not Offload.NONE
            what = f"samples of fewer than {LONG:,} tokens" if short else "samples beside offload"
            return f"{what} are shared out where nothing else fits: --cp asks for it" if short or offloads else None
        if self._script is not None:
            option = "--ep" if family.tensor_parallel == 1 else "--tp"
            option = option if family.pipeline is None else "--pp"
            return f"a script is spread so only where nothing else fits: {option} asks for it"
        if family.pipeline is None:
            if ranking.prefer is Prefer.BALANCE and self._held_whole(family):
                return "every device holds a whole copy, which ranks need not share: --tp, --ep or --prefer speed"
            return None
        if not self._counts_micro_batches:
            return "its micro batches would make a larger global batch than others have: --global-batch or --pp"
        if self._cluster.nodes == 1 and ranking.prefer is not Prefer.SPEED:
            # A few percent are all that stages gain there, less than any measured run has confirmed.
            return "within a node a plan without stages is simpler: --pp or --prefer speed asks for it"
        return None

    def _held_whole(self, family: Family) -> bool:
        """Whether no device needs another to hold the model and its states."""
        return holds_whole(self.evaluator, family, self.cuts[0])

    def beaten(self, family: Family, ranking: Ranking, plans: Sequence[StepJudgement]) -> str | None:
        """Why degrees cannot come first, by proved bounds; None where they might."""
        cuts = self.cuts_of(family)
        if family.pipeline is None:
            least = self.bounds.least(family, cuts)
        else:
            least = piped_bounds.least(self.evaluator, family, piped.runnable(family.pipeline, cuts))
        if least.seconds is None:
            needed, capacity = format_gib(least.bytes), format_gib(self.evaluator.capacity_bytes)
            return f"needs at least {needed} GiB, has {capacity}"
        seconds = ranking.bound(least.seconds, least.compared_seconds, needless=least.spared is not None)
        if not ranking.beyond(plans, seconds=seconds, parts=family.strategy.traits.moving_parts):
            return None
        fastest = ranking.fastest([plan for plan in plans if standing(plan) == 0])
        times = seconds / ranking.expected(fastest)
        return f"cannot come first: at best {times:.2f} times as long as {fastest.title}"

    @property
    def _counts_micro_batches(self) -> bool:
        """Whether every plan's step has as many samples: stages take several micro batches a step."""
        return self._workload.global_batch is not None or self._workload.grad_accum is not None

    @cached_property
    def bounds(self) -> Bounds:
        """Of this job's degrees."""
        return Bounds(self.evaluator)

    def forget(self) -> None:
        """Lets go of what was laid out and bounded so far; whoever asks again has it made again."""
        self.evaluator.forget()
        self.__dict__.pop("bounds", None)

    def by_states(self, family: Family) -> StepJudgement | None:
        """What a rank of several holds of one copy, only its trace tells."""
        return (
            None
            if family.copy_ranks > 1 or family.layout is not None
            else self.evaluator.judge_states(family, self.cuts_of(family)[0])
        )

    def explore(self, family: Family, *, exhaustive: bool) -> Explored[StepJudgement]:
        """The best micro batch, and the smallest that fails."""
        return self._explored(family, exhaustive=exhaustive)

    def fits_best(self, family: Family) -> StepJudgement | None:
        """The best micro batch, where it surely fits."""
        best = self._explored(family, only_fits=True).best
        return best if best is not None and best.verdict == "fits" else None

    def _explored(
        self, family: Family, *, exhaustive: bool = False, only_fits: bool = False
    ) -> Explored[StepJudgement]:
        cuts = self.cuts_of(family)
        if family.pipeline is not None:
            cuts = piped.runnable(family.pipeline, cuts)
            if piped.is_repeated(self.evaluator, family, cuts[0]):
                return Explored()
        if family.layout is not None:
            cuts = megatron.runnable(family.layout, cuts)
        try:
            with self.evaluator.provider.held():
                found = explored(self.evaluator, family, cuts, exhaustive=exhaustive, only_fits=only_fits)
            if family.layout is not None and found.best is None and found.rejected is not None:
                self._failed.append(found.rejected.judgement)
            return found
        except InputError:
            if self._workload.checkpointing is not None or family.checkpointing is not Checkpointing.SELECTIVE:
                raise
            return Explored()  # a class that cannot be checkpointed in a way that nobody asked for

    def smaller(self) -> Iterator[tuple[str, "TrainingTask"]]:
        """Options that the user fixed, with less asked."""
        for words, workload in relaxed(self._workload, self._can_checkpoint, self._cluster.gpu.is_cpu):
            yield words, self._with(workload, self._cluster)

    def on(self, cluster: Cluster) -> "TrainingTask":
        """The same model on other devices, strategy, offload, checkpointing and batch searched."""
        loose = replace(
            self._workload, strategy=None, offload=None, checkpointing=None, micro_batch=None, global_batch=None
        )
        return self._with(loose, cluster)

    def footprints(self) -> frozenset[object]:
        """Every further rank makes shards smaller."""
        return frozenset({self._cluster.world_size})

    def least_seconds(self) -> float:
        """Of a sample, by whatever plan: what the cluster computes, as if nothing else took time."""
        return least_of_a_sample(self.evaluator, self.families(), self.cuts)

    def fitting(self) -> StepJudgement | None:
        """The first fitting candidate at the smallest batch, one whose segments grow before one that offloads; traces
        are shared with the first search."""
        trial = self._with(replace(self._workload, grad_accum=None, global_batch=None))
        try:
            return self._first_fitting(trial)
        finally:
            trial.forget()

    def _first_fitting(self, trial: "TrainingTask") -> StepJudgement | None:
        batch = Batch(micro_batch=self._workload.micro_batch or 1, accumulation_steps=1)
        roomier: StepJudgement | None = None
        for family in trial.families():
            if trial.refusal(family) is not None:
                continue
            asked = self._staged if family.pipeline is not None else self._cut or self._asked
            if (family.copy_ranks > 1 or not self._placed(family)) and not asked:
                continue  # a trace for each degree and each change would take longer than the search
            if weights_overflow(trial.evaluator, family):
                continue
            alone = family.copy_ranks == 1 and family.layout is None
            if alone and trial.evaluator.judge_states(family, batch).verdict != "fits":
                continue
            if step_overflows(trial.evaluator, family, batch):
                continue
            judged = trial.evaluator.judge(family, batch)
            if judged.verdict == "no":
                continue  # its tensors alone leave no room, whatever the allocator makes of them
            judgement = trial.evaluator.simulate(judged, pressed=False)
            if trial._runs(judgement):
                return judgement if roomier is None or not judgement.offloads else roomier
            short = judgement.device_verdict != "fits"
            if roomier is None and short and by_blocks(trial.evaluator, judgement):
                other = trial.evaluator.simulate(trial.evaluator.judge(grown(family), batch))
                roomier = other if trial._runs(other) else None
        return roomier

    def _runs(self, judgement: StepJudgement) -> bool:
        """Whether it surely fits, the node too, and the real code comes to its end."""
        short = self.evaluator.host_shortage(judgement) or self.evaluator.disk_shortage(judgement)
        return judgement.verdict == "fits" and not judgement.plan.failure_reason and short is None

    def words(self, judgement: StepJudgement) -> str:
        """`FSDP2, micro batch 1, full checkpointing`."""
        return figures.words_of(judgement)

    def choice(self, judgement: StepJudgement) -> StrategyChoice:
        """Strategy, offload, batch and checkpointing."""
        return figures.choice_of(self.evaluator, judgement)

    def speed(self, judgement: StepJudgement) -> SpeedFigures:
        """Of one optimizer step."""
        return figures.speed_of(self.evaluator, judgement)

    def saved(self, judgement: StepJudgement) -> SavedFiles:
        """What a run of it leaves on disk."""
        return figures.saved_of(self.evaluator, judgement)

    def host(self, judgement: StepJudgement) -> HostFigures | None:
        """None on a CPU, whose RAM is the device."""
        return figures.host_of(judgement)

    def details(self, judgement: StepJudgement, *, lost: bool, best: bool) -> Details:
        """The launch command of a plan that runs, classes that are wrapped, settings that the planner chose."""
        return figures.details_of(self.evaluator, judgement, self._script, lost=lost, best=best)

    @property
    def _workload(self) -> Workload:
        return self.evaluator.workload

    @property
    def _cluster(self) -> Cluster:
        return self.evaluator.cluster

    @property
    def _can_checkpoint(self) -> bool:
        return self.evaluator.provider.spec().can_checkpoint

    @property
    def _script(self) -> str | None:
        """The training script that is planned, where one is."""
        name = self.evaluator.provider.spec().id
        return name if name.endswith(".py") else None

    def other(self, workload: Workload) -> "TrainingTask":
        """The same model and devices in another job."""
        return self._with(workload)

    def _with(self, workload: Workload, cluster: Cluster | None = None) -> "TrainingTask":
        return replace(self, evaluator=self.evaluator.of(workload, cluster or self.evaluator.cluster))
