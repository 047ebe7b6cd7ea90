"""From a job to its launch files."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_plan.executor.inference.job import is_inference
from gpu_plan.executor.job import Job
from gpu_plan.executor.launch.arguments import Told, tell
from gpu_plan.executor.launch.engines.registry import find_engine
from gpu_plan.executor.launch.environment import batch_environment, device_environment, run_environment
from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.launch.not_applied import not_applied
from gpu_plan.executor.launch.refusals import (
    Seen,
    agreed_norm,
    length_is_the_datas,
    refusals,
    refuse_own_model,
    refuse_stack,
    refuse_stages,
    unknown,
)
from gpu_plan.executor.launch.script_arguments import script_arguments
from gpu_plan.executor.launch.target import Target
from gpu_plan.executor.names import COMMAND_FILE
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.executor.script.accelerator import AcceleratorUse, accelerator_use
from gpu_plan.executor.script.check_arguments import rejected
from gpu_plan.executor.script.imported import words_imported
from gpu_plan.executor.script.loop import Loop, loop_in_words, loop_of
from gpu_plan.executor.script.option import ScriptOptions
from gpu_plan.executor.script.options import options_of, training_options
from gpu_plan.executor.script.plan_use import asks_for
from gpu_plan.executor.script.read import Script, read_script
from gpu_plan.executor.script.resume_words import going_on_from
from gpu_plan.executor.script.values.batch import batch_of
from gpu_plan.executor.script.values.clipping import clips_of
from gpu_plan.planner.errors import PreflightError, UsageError
from gpu_plan.planner.own_python import own_command
from gpu_plan.planner.plan.figures import StrategyChoice
from gpu_plan.planner.workload.stacks.registry import Stack

RECORD_SECONDS = 0.5
"""How often at most a rank writes its record."""
_SPREAD = (
    "torchrun starts the ranks, and transformers itself spreads the script's model over them (DistributedConfig):"
    " beside its own FSDP2, Accelerate's tensor parallel imports what transformers has removed (accelerator.py:"
    " _prepare_tp), and it has no experts over ranks"
)
_TENSOR = (
    "accelerate launch starts the ranks, tensor parallel in its file (parallelism_config), and transformers itself"
    " spreads the script's model over them"
)
_BATCH = ("micro_batch_size", "gradient_accumulation_steps")


def prepare(job: Job, *, attempt: int, folder: RunFolder, resume_from: Path | None) -> LaunchFiles:
    """How `job` is launched through Accelerate, each rank observed. Writes nothing; reads the script.

    Raises InputError or UnreachableError for the script, UsageError for arguments that it would refuse, PreflightError
    as `check` does.
    """
    if is_inference(job.saved):
        from gpu_plan.executor.launch.prompts import prepare_inference

        return prepare_inference(job, attempt=attempt, folder=folder, resume_from=resume_from)
    script = read_script(job.script)
    drawn = check(draw(job, script, folder=folder.path, resume_from=resume_from), job)
    target = replace(drawn.target, logs=folder.logs, launcher=accelerate_words(), torchrun=torchrun_words())
    environment = {
        **target.environment,
        **run_environment(
            run_id=folder.run_id,
            folder=folder.path,
            attempt=attempt,
            resume_from=resume_from,
            options=_runner_options(job, drawn),
        ),
        **job.environment,
    }
    engine = "accelerate" if target.goes_by_accelerate and job.placement is None else "torchrun"
    launch = find_engine(engine)(replace(target, environment=environment))
    if job.placement is not None:
        launch = replace(launch, command=(*job.placement.start, "sh", str(folder.path / COMMAND_FILE)))
    return replace(launch, notes=drawn.notes, not_applied=drawn.not_applied)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A target, and how each of its values reaches the script."""

    target: Target
    told: Told
    use: AcceleratorUse
    kind: str = ""
    """What the script runs, in words; empty without a script."""
    not_applied: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """What would train otherwise than planned, one line each: see `refusals`."""

    @property
    def notes(self) -> tuple[str, ...]:
        found = []
        strategy, inside = self.target.strategy, self.set_inside
        if self.rebatches and self.target.in_trainer:
            what = {
                "micro_batch_size": f"micro batch {strategy.loop_batch_size}",
                "gradient_accumulation_steps": f"{strategy.loop_steps} accumulation steps",
            }
            words = " and ".join(words for name, words in what.items() if name in inside)
            found.append(f"the script's own TrainingArguments are given what is planned: {words}")
        elif self.rebatches:
            found.append(
                "the script has no option for its micro batch: its DataLoader is rebuilt with"
                f" {strategy.loop_batch_size} on each rank"
            )
        if length_is_the_datas(self.target, self.told):
            found.append(f"the data is taken to have the planned length: {self.told.reasons['sequence_length']}")
        if self.target.spreads_model:
            found.append(_TENSOR if self.target.goes_by_accelerate else _SPREAD)
        if self.target.layout is not None:
            found.append(_staged(strategy))
        return (*found, *_of_defaults(self.target, self.told), *self._routes())

    def _routes(self) -> Iterator[str]:
        """What the script is, and by which way the plan's values reach it."""
        if not self.kind:
            return
        strategy, told = self.target.strategy, self.told
        held = f"{strategy.name} and {strategy.precision}"
        by_accelerate = self.target.loop in ("accelerate", "trainer")
        ways = [
            f"{held} reach it by Accelerate's configuration" if by_accelerate else f"{held} have to be its own doing",
            *([f"{' '.join(told.words)} by its own options"] if told.words else []),
            *([f"{_fields(told.by_script)} as it asks the plan"] if told.by_script else []),
            *([f"{_fields(self.set_inside)} within each rank"] if self.set_inside else []),
            *([f"{_fields(told.by_user)} as you gave it"] if told.by_user else []),
        ]
        yield f"{self.target.script.name} is {self.kind}: {', '.join(ways)}"

    @property
    def rebatches(self) -> bool:
        """Whether the planned batch is set inside the rank."""
        return bool(self.set_inside)

    @property
    def set_inside(self) -> frozenset[str]:
        """What of the batch is set inside the rank, as nothing else tells the script: of its DataLoader by an
        Accelerator that prepares it, of its TrainingArguments when it makes them."""
        able = {"accelerate": ("micro_batch_size",), "trainer": _BATCH}.get(self.target.loop, ())
        return frozenset(name for name in able if not self.told.knows(name))


def _staged(strategy: StrategyChoice) -> str:
    """What a plan in stages makes of the script's loop."""
    return (
        "torchrun starts the ranks, and the script's model is cut into stages where it is made: each of its training"
        f" calls gets {strategy.loop_batch_size} samples, which go through as"
        f" {strategy.gradient_accumulation_steps} micro batches of {strategy.micro_batch_size}, forward and backward"
        " (torch.distributed.pipelining), and gives the loss alone"
    )


def draw(
    job: Job, script: Script | None, *, folder: Path, resume_from: Path | None = None, observed: bool = True
) -> Drawn:
    """The target of a job: what the script is told, by which way, and what it cannot be told. Pure.

    Without a script, one for which the plan was made is taken for granted. Raises UsageError for arguments that the
    script would refuse.
    """
    if observed:
        refuse_own_model(job.saved, job.script)
    refuse_stack(job.saved, job.script)
    refuse_stages(job.saved, job.script)
    if script is not None and script.is_notebook:
        raise UsageError(
            f"{script.path} is a notebook, which ranks cannot be started from: write its cells into a script, or call"
            " executor.run in it"
        )
    options, loop, use = _known(script, job)
    draft = Target(
        saved=job.saved,
        script=job.script,
        loop=loop,
        folder=folder,
        observed=observed,
        hosts=job.hosts,
        machine_rank=job.machine_rank,
        port=job.main_process_port,
        placed=job.placement is not None,
        made_by=job.command or job.saved.command,
    )
    given = job.arguments if resume_from is None else going_on_from(job.arguments, str(resume_from))
    told = tell(
        script_arguments(draft, options, resume_from),
        options,
        given,
        frozenset() if script is None else asks_for(script),
    )
    words = (*told.words, *given)
    reason = None if script is None else rejected(script, words)
    if reason is not None:
        raise UsageError(reason)
    clips = () if script is None else clips_of(script, options, words)
    target = replace(
        draft,
        arguments=words,
        script_checkpoints=told.knows("checkpointing"),
        batch_is_users=any(name in told.by_user for name in _BATCH),
        script_clips=agreed_norm(clips),
    )
    target = replace(target, environment={**batch_environment(target), **device_environment(target)})
    drawn = Drawn(target=target, told=told, use=use)
    if script is None:
        return drawn
    drawn = replace(drawn, kind=loop_in_words(script, loop))
    own = batch_of(script, loop, options, words)
    beside, all_read = words_imported(script)
    asks = asks_for(script)
    seen = Seen(
        use=use,
        clips=clips,
        batch=own,
        beside=beside,
        all_read=all_read,
        asks=asks,
        set_inside=drawn.set_inside if observed else frozenset(),
    )
    lost = (*told.not_applied, *unknown(target, told, seen), *not_applied(target, use))
    return replace(drawn, not_applied=lost, refused=refusals(target, told, seen))


def _fields(names: frozenset[str]) -> str:
    """Fields of CurrentPlan, for people."""
    return " and ".join(sorted(name.replace("_", " ") for name in names if name))


def check(drawn: Drawn, job: Job) -> Drawn:
    """PreflightError, in one line, where the job would train otherwise than planned and nobody allowed it."""
    if not drawn.refused:
        return drawn
    if not job.allow_deviation:
        raise PreflightError(f"{'; '.join(drawn.refused)}; --allow-deviation runs it as it is")
    return replace(drawn, not_applied=(*drawn.refused, *drawn.not_applied))


def _of_defaults(target: Target, told: Told) -> tuple[str, ...]:
    """What the plan has from nobody but its own defaults, and a run is told all the same: it changes losses."""
    basis = target.saved.workload.get("basis")
    if not isinstance(basis, Mapping):
        return ()
    found = [("precision", "--precision", target.strategy.precision)]
    if "optimizer" in told.by_option:
        found.append(("optimizer", "--optimizer", str(target.saved.workload["optimizer"])))
    if "sequence_length" in told.by_option:
        found.append(("seq_len", "--seq-len", str(target.saved.workload["seq_len"])))
    return tuple(
        f"{value} is the plan's own default, and the run has it: {option} names another"
        for name, option, value in found
        if basis.get(name) == "default"
    )


def _known(script: Script | None, job: Job) -> tuple[ScriptOptions, Loop, AcceleratorUse]:
    """What a script's text tells; without one, what the plan's stack means."""
    if script is not None:
        return options_of(script), loop_of(script), accelerator_use(script)
    loop = Stack(str(job.saved.workload["stack"])).traits.loop
    if loop == "trainer":
        return training_options("TrainingArguments"), "trainer", AcceleratorUse()
    return ScriptOptions(), "accelerate" if loop == "accelerate" else "plain", AcceleratorUse()


def accelerate_words() -> tuple[str, ...]:
    """`accelerate launch` of this very environment, whatever PATH says.

    By the script of its own that Accelerate installs for it: the command `accelerate` imports all of its verbs, and
    with one of them transformers, which is a third of what a launcher's start costs.
    """
    beside = Path(sys.executable).parent / "accelerate-launch"
    if beside.is_file():
        return (str(beside),)
    return tuple(own_command("accelerate.commands.launch"))


def torchrun_words() -> tuple[str, ...]:
    """`torchrun` of this very environment, whatever PATH says."""
    beside = Path(sys.executable).parent / "torchrun"
    return (str(beside),) if beside.is_file() else tuple(own_command("torch.distributed.run"))


def _runner_options(job: Job, drawn: Drawn) -> Mapping[str, object]:
    """What the in-rank runner is told; see gpu_plan.executor.runner.options."""
    target = drawn.target
    elsewhere = target.in_trainer or target.script_checkpoints or target.wrapper_checkpoints
    return {
        "expected_parameters": job.expected_parameters,
        "rebatch": "micro_batch_size" in drawn.set_inside,
        "reaccumulate": "gradient_accumulation_steps" in drawn.set_inside,
        "checkpointing": "none" if elsewhere else target.strategy.checkpointing,
        "record_seconds": RECORD_SECONDS,
        "stop_on_nan": job.stop_on_nan,
        "oom_snapshot": False,
        "data_loader": {} if target.in_trainer else target.data_loader,
    }
