"""The next plan after an out-of-memory end (I/O through the planner's process)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from gpu_plan.executor.inference.job import is_inference
from gpu_plan.executor.inference.replan import smaller_batch
from gpu_plan.executor.job import Job
from gpu_plan.executor.launch.prepare import draw
from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.script.read import read_script
from gpu_plan.executor.supervise.causes.estimate import explain_estimate, real_capacity
from gpu_plan.executor.supervise.ladder.planner_process import Evaluated, evaluate
from gpu_plan.executor.supervise.ladder.rungs import Abilities, change_words, rungs
from gpu_plan.planner.plan.figures import StrategyChoice
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.units import format_bytes

Evaluate = Callable[[Job, StrategyChoice], Evaluated]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """What to run next, or why nothing is left."""

    job: Job | None
    """None where the ladder has no further rung."""
    changes: tuple[str, ...]
    """What changes and why, one line each; where nothing is left, why not."""


def replan(
    job: Job,
    ranks: Sequence[RankRecord],
    folder: Path,
    *,
    data_limits: Mapping[int, int],
    keeps: Callable[[StrategyChoice], bool] = lambda strategy: True,
    stop: Callable[[], object] = lambda: None,
    evaluate_one: Evaluate = evaluate,
) -> Replan:
    """The mildest change that keeps the effective batch and takes less memory by the planner's own figures.

    Where CUDA told how much the rank could have had, the new figure must be within that. A rung that the planner
    cannot be asked about (its model cannot be reached any more) is taken as it is. `keeps` tells whether a strategy can
    go on from what was saved, `stop` whether an interrupt came meanwhile.
    """
    if is_inference(job.saved):
        smaller, change = smaller_batch(job)
        return Replan(job=smaller, changes=(change,))
    saved, before = job.saved, job.saved.plan.strategy
    able, missing = abilities(job, ranks, folder)
    why = tuple(f"why the estimate was wrong: {line}" for line in explain_estimate(saved, ranks, data_limits))
    was = saved.plan.memory.device_used_bytes if saved.plan.memory else None
    room = real_capacity(ranks)
    refused: list[str] = []
    # What would have to begin again comes last.
    ladder = sorted(rungs(before, able), key=lambda one: not keeps(one))
    while ladder and not stop():
        strategy = ladder.pop(0)
        found = evaluate_one(job, strategy)
        after = found.saved
        if after is None and not found.asked and _only_smaller(before, strategy):
            after = _unjudged(saved, strategy)
        if after is None:
            refused.append(found.reason if found.impossible else f"{_short(strategy)}: {found.reason}")
            if found.impossible and _only_smaller(before, strategy) and strategy.checkpointing != before.checkpointing:
                # The model cannot be checkpointed: the rungs above are tried without.
                without = rungs(before, replace(able, checkpointing=False))
                ladder = sorted(
                    (one for one in without if not _only_smaller(before, one)), key=lambda one: not keeps(one)
                )
            continue
        changed = refused_by_script(job, after, folder)
        if changed:
            refused.append(f"{_short(strategy)}: {changed}")
            continue
        now = after.plan.memory.device_used_bytes if after.plan.memory else None
        if now is not None and ((was is not None and now >= was) or (room is not None and now > room)):
            refused.append(f"{_short(strategy)} would still take {format_bytes(now)}")
            continue
        figures = f": {format_bytes(now)} expected instead of {format_bytes(was)}" if now and was else ""
        change = f"out of memory, so {change_words(before, after.plan.strategy)}{figures}"
        return Replan(job=replace(job, saved=after), changes=(change, *why, *missing))
    nothing = "out of memory, and no plan with the same effective batch takes less"
    reasons = tuple(dict.fromkeys(refused))[:4]
    return Replan(job=None, changes=(nothing + (f" ({'; '.join(reasons)})" if reasons else ""), *why, *missing))


def refused_by_script(job: Job, saved: SavedPlan, folder: Path) -> str:
    """Why the script would train otherwise under this plan; empty where it would not, or where that is allowed."""
    if job.allow_deviation:
        return ""
    return "; ".join(draw(replace(job, saved=saved), read_script(job.script), folder=folder).refused)


def abilities(job: Job, ranks: Sequence[RankRecord], folder: Path) -> tuple[Abilities, tuple[str, ...]]:
    """What a relaunch of this script can change, and one line for what it cannot."""
    drawn = draw(job, read_script(job.script), folder=folder)
    told, strategy = drawn.told, job.saved.plan.strategy
    lines = []
    mine = "micro_batch_size" not in told.by_user and "gradient_accumulation_steps" not in told.by_user
    # In stages a call takes all micro batches of a step, however many they are: the script need not be told.
    staged = strategy.pipeline_parallel > 1
    takes_batch = staged or told.knows("micro_batch_size") or "micro_batch_size" in drawn.set_inside
    accumulates = staged or told.knows("gradient_accumulation_steps") or drawn.use.accumulates
    seen = {rank.actual.micro_batch_size for rank in ranks} - {None}
    ignores = bool(seen) and seen != {job.saved.rows_of_a_call}
    if strategy.micro_batch_size == 1:
        pass  # none is smaller, whatever the script takes
    elif not mine:
        lines.append("micro batch and accumulation are your own words after --, so they stay")
    elif not takes_batch:
        lines.append(
            f"{job.script.name} has no option for its batch and does not ask current_plan() for it, so it stays"
        )
    elif ignores:
        lines.append(f"{job.script.name} ran micro batch {seen.pop()}, not the plan's, so the batch stays as it is")
    elif not accumulates:
        lines.append(f"{job.script.name} does not accumulate gradients, so a smaller batch would change the training")
    able = Abilities(
        batch=mine and takes_batch and not ignores and accumulates,
        checkpointing="checkpointing" not in told.by_user,
        deepspeed=find_spec("deepspeed") is not None,
    )
    return able, tuple(lines)


def _only_smaller(before: StrategyChoice, after: StrategyChoice) -> bool:
    """Whether only batch and checkpointing change: that takes less memory whatever the model."""
    return (before.name, before.offload) == (after.name, after.offload)


def _unjudged(saved: SavedPlan, strategy: StrategyChoice) -> SavedPlan:
    return replace(saved, plan=replace(saved.plan, strategy=strategy, verdict="tight", memory=None, speed=None))


def _short(strategy: StrategyChoice) -> str:
    return f"{strategy.name}, micro batch {strategy.micro_batch_size}, checkpointing {strategy.checkpointing}"
