"""`plan JOB.toml`: the first trained model prepared for the search as any model is, the others beside it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.prepared import Openers, Prepared
from gpu_plan.planner.job.recipe.engine import SLEEPS, Engine, engines
from gpu_plan.planner.job.recipe.spread import server_ranks, training_part
from gpu_plan.planner.job.several.composed import Composer
from gpu_plan.planner.job.several.document import read_document
from gpu_plan.planner.job.several.evaluator import judging
from gpu_plan.planner.job.several.figures import JobTask
from gpu_plan.planner.job.several.generated import Generator
from gpu_plan.planner.job.several.megatron import STAGED, check_megatron, own_degrees
from gpu_plan.planner.job.several.runner import Runner
from gpu_plan.planner.job.several.sources import as_it_speaks, find_sources
from gpu_plan.planner.job.several.staged import Passes
from gpu_plan.planner.job.training import prepare as prepare_training
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.options.degrees.megatron import runs_own_model
from gpu_plan.planner.options.recipe.read import RECIPE_WORDS, refuse_logits
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.several.given import Between, Does, Head, JobGiven, ModelGiven
from gpu_plan.planner.options.several.ppo import WHERE, left_words, loop_of, ppo_table
from gpu_plan.planner.options.several.read import read_job
from gpu_plan.planner.plan.document import Assumption, Condition
from gpu_plan.planner.strategy.known import strategy_by, traits_of, unsharded
from gpu_plan.planner.strategy.traits import Engine as Wrapper
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.units import ceil_div
from gpu_plan.planner.workload.precisions import PLAIN_NAME, PRECISIONS, Precision, mixed_in
from gpu_plan.planner.workload.training import Workload

_REFUSED = ("task", "recipe", *RECIPE_WORDS, "tp", "pp", "cp", "ep", "vpp", "schedule", "stack")
"""What a document says, or what this version does not spread a job of several models over."""
_SHARES = (2, 4, 8)
"""Parts of the longest sample that are tried in its place."""
_FROZEN = next(one.name for one in PRECISIONS.values() if one.is_pure and one.trains)
"""Precision of a frozen model where the document says none."""
_MIXED = mixed_in("bfloat16")
"""What Megatron's workers call bf16: weights in 16 bits, masters in the optimizer alone."""


def prepare(request: Request, cluster: Cluster, source: ModelSource, note: Note, openers: Openers) -> Prepared:
    """The job that a document describes. UsageError and InputError for what makes no sense."""
    assert source.path is not None
    where, words = source.id, dict(request.words)
    for name in _REFUSED:
        if name in words:
            raise UsageError(f"--{name} beside a job document: {where} says what its models do; leave --{name} out")
    job = read_document(source.path, where)
    return _planned(_Job(request, cluster, job, find_sources(job, source.path, where), note, openers, where))


def prepare_ppo(request: Request, cluster: Cluster, source: ModelSource, note: Note, openers: Openers) -> Prepared:
    """`--recipe ppo`: the document that its words stand for. UsageError and InputError for what makes no sense."""
    words = dict(request.words)
    if source.config is None:
        raise UsageError(f"{WHERE} trains models of transformers: {source.id} is not one (name an id or a folder)")
    frozen = strategy_by(Wrapper.FSDP2).name if cluster.world_size > 1 else None
    job = read_job(ppo_table(words, request.model, frozen=frozen), WHERE)
    for name in _REFUSED:
        if name in left_words(words):
            raise UsageError(f"--{name} with {WHERE} is not in this version: leave it out")
    inner = replace(request, words=tuple(left_words(words).items()))
    found = _planned(_Job(inner, cluster, job, find_sources(job, Path.cwd() / "job", WHERE), note, openers, WHERE))
    return replace(found, fixed=(Assumption(text=loop_of(words), basis="assumed"), *found.fixed))


def _planned(found: "_Job") -> Prepared:
    refuse_logits(found.request.settings)
    job, words, where = found.job, dict(found.request.words), found.where
    whole = found.prepared(_searched_words(job, words, where))
    return replace(whole, shorter=lambda: found.shorter(words)) if job.padding_removed else whole


def _searched_words(job: JobGiven, words: Mapping[str, str], where: str) -> dict[str, str]:
    """Options of the model that is searched: the document's and the command line's, which may not say the same."""
    update = job.update
    own = {**dict(job.anchor.words), "seq-len": str(update.seq_len)}
    own |= {} if update.micro_batch is None else {"micro-batch": str(update.micro_batch)}
    if update.cut is not None:
        own["grad-accum"] = str(update.cut.passes(update.seq_len))
        if "global-batch" in words:
            raise UsageError(f"--global-batch: {where} says which samples of a rank an update takes: leave it out")
    for name in own:
        if name in words:
            raise UsageError(f"--{name} is said by {where} already: leave one out")
    return {**words, **own, **own_degrees(job.anchor)}


@dataclass(frozen=True, slots=True)
class _Job:
    request: Request
    cluster: Cluster
    job: JobGiven
    sources: Mapping[str, ModelSource]
    note: Note
    openers: Openers
    where: str
    presumed: tuple[Condition, ...] = ()
    """What it presumes of the samples."""

    def shorter(self, words: Mapping[str, str]) -> Iterator[Prepared]:
        """The job with samples of usual lengths where it says them, else of a half, a quarter and an eighth."""
        prompt, completion = self.job.lengths
        shares = ((ceil_div(prompt, share), ceil_div(completion, share)) for share in _SHARES)
        for lengths in shares if self.job.usual is None else (self.job.usual,):
            job = self.job.shortened(lengths)
            condition = Condition(
                needs="sample length", bytes=0, option="usual_prompt_len, usual_completion_len", tokens=sum(lengths)
            )
            other = replace(self, job=job, presumed=() if self.job.usual is not None else (condition,))
            yield other.prepared(_searched_words(job, words, self.where))

    def prepared(self, words: dict[str, str]) -> Prepared:
        """The job, ready to be searched."""
        job, anchor = self.job, self.job.anchor
        check_megatron(job, self.where)
        trains, engine = self._engine(self.cluster)
        self._check_spread(anchor, words.get("strategy"))
        settings = self._settings(anchor, self.request.settings)
        settings += ("alloc.expandable_segments=true",) if job.expands else ()
        inner = replace(self.request, words=tuple(words.items()), settings=settings)
        found = prepare_training(inner, trains, self.sources[anchor.role], self.note, self.openers)
        evaluator: Any = found.task.evaluator
        runners = {anchor.role: self._runner(anchor, evaluator, trains)}
        for model in job.models[1:]:
            if model.engine is None:
                runners[model.role] = self._runner(model, self._beside(model, trains), trains)
        composer = Composer(job=job, runners=runners)
        asked = None if job.engine is None else job.engine.engine
        is_open = asked is not None and asked.may_sleep and not self.request.pinned
        return replace(
            found,
            task=JobTask(
                judging(evaluator, composer, engine, self._engine, self.presumed, sleeps_if_needed=is_open), job=job
            ),
            fixed=(*((SLEEPS,) if is_open else ()), *_fixed(job), *found.fixed),
        )

    def _runner(self, model: ModelGiven, evaluator: Any, cluster: Cluster) -> Runner:
        if runs_own_model(model.word("strategy")):
            values = model.head is Head.VALUE
            passes = Passes(evaluator=evaluator, trained=model.trains, values=values)
            return Runner(given=model, evaluator=evaluator, passes=passes)
        generates = any(phase.does is Does.GENERATE and model.role in phase.roles for phase in self.job.phases)
        if not generates:
            return Runner(given=model, evaluator=evaluator)
        if self.sources[model.role].config is None:
            raise InputError(f"{self.where}: models.{model.role}: a factory's model does not generate: name an id")
        generator = Generator(
            request=self._inner(()),
            cluster=cluster,
            source=as_it_speaks(self.sources[model.role]),
            precision=_generating_precision(model, evaluator.workload),
            note=self.note,
            openers=self.openers,
        )
        return Runner(given=model, evaluator=evaluator, generating=generator)

    def _beside(self, model: ModelGiven, trains: Cluster) -> Any:
        """The evaluator of another model than the one that is searched."""
        words = {**dict(model.words), "seq-len": str(self._longest(model)), **own_degrees(model)}
        whole = not model.trains and model.word("strategy") is None
        if runs_own_model(model.word("strategy")):
            words = {**words, **own_degrees(self.job.anchor), "precision": self.job.anchor.word("precision") or _MIXED}
        elif not model.trains:
            words.setdefault("precision", _FROZEN)
        cluster = replace(trains, nodes=1, gpus_per_node=1) if whole else trains
        if whole:
            words["strategy"] = unsharded(1).name
        self._check_spread(model, words.get("strategy"))
        if runs_own_model(model.word("strategy")) and not model.megatron:
            model = replace(model, megatron=self.job.anchor.megatron)  # the workers' own, of all their models
        inner = replace(self._inner(tuple(words.items())), settings=self._settings(model))
        return prepare_training(inner, cluster, self.sources[model.role], self.note, self.openers).task.evaluator

    def _settings(self, model: ModelGiven, given: Sequence[str] = ()) -> tuple[str, ...]:
        """Those that the command line gives, and the document's, which may not say the same."""
        said = [word.partition("=")[0] for word in given]
        for word in model.settings:
            if word.partition("=")[0] in said:
                raise UsageError(f"--set {word.partition('=')[0]} is said by {self.where} already: leave one out")
        return (*given, *model.settings)

    def _check_spread(self, model: ModelGiven, strategy: str | None) -> None:
        """InputError for a strategy that holds nothing of a model without an optimizer, or is no one rank's."""
        if strategy in (None, "auto"):
            return
        assert strategy is not None
        traits = traits_of(strategy.lower())
        if traits.own_model and not runs_own_model(model.word("strategy")):
            raise InputError(
                f'{self.where}: models.{model.role}: write strategy = "{traits.name}" and its degrees there,'
                " in place of --strategy"
            )
        if traits.own_model:
            return
        if traits.pipeline_parallel or traits.tensor_parallel or traits.expert_parallel == "must":
            raise InputError(
                f"{self.where}: models.{model.role}: {strategy} beside other models is not in this version"
            )
        offload = model.word("offload")
        if offload not in (None, Offload.NONE, *traits.offloads):
            raise InputError(
                f"{self.where}: models.{model.role}: {strategy} keeps nothing on the host by itself: leave offload out,"
                ' or say between = "host"'
            )
        if not model.trains and not traits.shards_model and not traits.one_device:
            raise InputError(
                f"{self.where}: models.{model.role}: {strategy} shares out what an optimizer needs, and a frozen model"
                " has none: use fsdp, zero3 or leave strategy out, which keeps it whole"
            )

    def _inner(self, words: tuple[tuple[str, str], ...]) -> Request:
        return replace(self.request, words=words, settings=(), snapshot=False, plot=False, schedule=False, pinned=False)

    def _longest(self, model: ModelGiven) -> int:
        own = [phase for phase in self.job.phases if model.role in phase.roles]
        training = [phase for phase in own if phase.does is Does.TRAIN]
        return max(phase.seq_len for phase in training or own)

    def _engine(self, cluster: Cluster) -> tuple[Cluster, Engine | None]:
        """Devices that train, and the engine on them or beside them."""
        model = self.job.engine
        if model is None or model.engine is None:
            return cluster, None
        asked = model.engine
        rollout = next(p for p in self.job.phases if model.role in p.roles and p.does is Does.GENERATE)
        lengths = rollout.prompt_len, rollout.completion_len
        beside = engines(asked, lengths, self._inner(()), cluster, self.sources[model.role], self.note)
        if asked.mode == "server":
            ranks = server_ranks(asked, cluster, beside)
            taken = asked.copies * ranks
            if taken >= cluster.world_size:
                raise InputError(
                    f"{self.where}: models.{model.role}: {asked.copies} copies take {taken} GPUs, and"
                    f" {cluster.world_size} leave none to train on: give more --gpus"
                )
            return training_part(cluster, taken), beside.on(taken, ranks, asked.sequences)
        ranks = asked.tensor_parallel or 1
        rows = asked.sequences or (None if rollout.micro_batch is None else rollout.micro_batch * ranks)
        return cluster, beside.on(cluster.world_size, ranks, rows)


def _generating_precision(model: ModelGiven, workload: Workload) -> Precision:
    """That of its updates, but where a wrapper hands `generate` to the model inside, which nothing autocasts.

    trl 0.9.6 modeling_value_head.py: generate; weights that are trained whole lie there in fp32.
    """
    whole = model.head is Head.SHARED and model.trains and not workload.peft.adapts
    return Precision(PLAIN_NAME) if whole and workload.precision.is_mixed else workload.precision


def _fixed(job: JobGiven) -> tuple[Assumption, ...]:
    """What every plan of the job rests on."""
    texts = [
        (
            "each model's own class is traced by itself; on one device the update of the first trained model runs"
            " twice, then every other phase in the document's order",
            "traced",
        ),
        (
            "plans are ranked by the first trained model's update; seconds of the other phases are for as many samples,"
            " one after the other, an engine's the least that reading weights and cache takes",
            "assumed",
        ),
        ("each phase is a function of its own: what it made is gone when the next begins", "assumed"),
        ("models share one process: its CUDA context and cuBLAS workspaces stand once", "assumed"),
    ]
    staged = runs_own_model(job.anchor.word("strategy"))
    texts += [(STAGED, "source")] if staged else []
    losses = sorted({model.loss for model in job.models if model.loss is not None})
    if losses:
        texts.append((f"log-probabilities are taken as {' and '.join(losses)} takes them", "source"))
    elif not staged and any(phase.does is Does.LOG_PROBABILITIES for phase in job.phases):
        texts.append(
            (
                "log-probabilities are taken as transformers' own loss takes them, of all tokens at once: a trainer"
                " that goes row by row, or asks for some tokens, takes less",
                "assumed",
            )
        )
    if any(model.between is not Between.DEVICE for model in job.models):
        texts.append(("what lies on the host is moved whole, before its phase and behind it", "assumed"))
    return tuple(Assumption(text=text, basis=basis) for text, basis in texts)  # type: ignore[arg-type]
