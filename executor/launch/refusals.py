"""What would train otherwise than planned, as far as it is known before the launch. Pure.

Each line of `refusals` stops the launch unless the user says `--allow-deviation`; what only the run can tell is said.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpu_plan.executor.launch.arguments import Told
from gpu_plan.executor.launch.target import Target
from gpu_plan.executor.script.accelerator import AcceleratorUse
from gpu_plan.executor.script.values.batch import OwnBatch
from gpu_plan.executor.script.values.clipping import Clip
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.strategy.known import traits_of
from gpu_plan.planner.workload.precisions import stored_precision
from gpu_plan.planner.workload.stacks.registry import Stack

_CLIP = "clip.max_norm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the script's text tells of itself."""

    use: AcceleratorUse
    clips: Sequence[Clip] = ()
    batch: OwnBatch = field(default_factory=OwnBatch)
    beside: frozenset[str] = frozenset()
    """Words of the files of its own that it imports: a helper may wrap the model."""
    all_read: bool = True
    """Whether every module that it imports was found: one that was not may wrap the model."""
    asks: frozenset[str] = frozenset()
    """Fields of CurrentPlan that it asks for."""
    set_inside: frozenset[str] = frozenset()
    """Fields of CurrentPlan that the runner sets inside the rank: of the DataLoader, of TrainingArguments."""


def refuse_own_model(saved: SavedPlan, script: Path) -> None:
    """UsageError for a plan of a library's own model, which no script's loop runs."""
    library = traits_of(saved.plan.strategy.name).own_model
    if library:
        raise UsageError(
            f"{script.name} is not run by a plan of {library}'s own model: plan export PLAN --to megatron-lm writes"
            " what Megatron-LM runs"
        )


def refuse_stack(saved: SavedPlan, script: Path) -> None:
    """UsageError for a plan of ranks that share a model as a trainer of its own spreads it."""
    stack = Stack(str(saved.workload["stack"])).traits
    degree = saved.plan.strategy.tensor_parallel
    if stack.cuts_sequence and degree > 1:
        raise UsageError(
            f"{script.name} cannot be spread as {stack.title} spreads a model over {degree} ranks: its own trainer does"
            " (the plan's own command says how); the plan of another --stack is run here"
        )


def refuse_stages(saved: SavedPlan, script: Path) -> None:
    """UsageError for a plan in stages that no launch gives a script.

    torch.distributed.pipelining runs forward and backward of all micro batches in one call (schedules.py: step), with
    losses that cannot be scaled afterwards: fp16's scaler would come too late.
    """
    strategy = saved.plan.strategy
    if not traits_of(strategy.name).pipeline_parallel:
        return
    what = f"{script.name} cannot be run in {strategy.pipeline_parallel} pipeline stages"
    if not saved.plan.stages:
        raise UsageError(f"{what}: the plan does not say which layers they hold; make it again with this version")
    if stored_precision(strategy.precision).scales_loss:
        raise UsageError(
            f"{what} in {strategy.precision}: the loss is scaled after its schedule has gone back already; plan with"
            " --precision bf16-mixed or fp32"
        )


def refusals(target: Target, told: Told, seen: Seen) -> tuple[str, ...]:
    """One line each: what would run, what is planned, and what to write."""
    return (
        *_clipping(target, told, seen),
        *_batch(target, told, seen),
        *_starts_ranks(target),
        *_alone(target, seen),
        *_spread(target, seen),
        *_shared_tokens(target, seen),
    )


_WRAPPERS = frozenset({"DistributedDataParallel", "FullyShardedDataParallel", "fully_shard"})
_SHARES_OUT = frozenset({"DistributedSampler", "DistributedConfig"})


def _spread(target: Target, seen: Seen) -> Iterator[str]:
    """A plain loop whose model is spread inside the ranks: nothing else may wrap it, and groups of ranks need samples
    of their own."""
    if not target.joins_ranks or target.loop != "plain":
        return
    option = "--tp" if target.spreads_model else "--pp"
    name, words = target.script.name, seen.use.names | seen.beside
    wrappers = sorted(_WRAPPERS & words)
    if wrappers and "strategy" not in seen.asks:
        yield (
            f"{name} wraps its model in {wrappers[0]}, which is not for one that {option} spreads over the ranks:"
            " leave it unwrapped where current_plan().strategy is"
            f" {target.strategy.name}, or plan without {option}"
        )
    if target.strategy.data_parallel > 1 and seen.all_read and not _SHARES_OUT & words:
        yield (
            f"{name} shares its samples out to nobody: all {target.strategy.data_parallel} groups of ranks would train"
            " on the same ones; give its DataLoader a DistributedSampler, make the loop Accelerate's, or plan with"
            f" {option} {target.strategy.world_size}"
        )


def _shared_tokens(target: Target, seen: Seen) -> Iterator[str]:
    """A loop of the script's own that never cuts its samples: each rank of a group would compute all of every one.

    transformers' Trainer does it by itself.
    """
    degree = target.strategy.context_parallel
    if degree == 1 or target.in_trainer:
        return
    name, words = target.script.name, seen.use.names | seen.beside
    if target.loop != "accelerate":
        yield f"{name} runs no loop of Accelerate's or the Trainer's, which alone share out tokens by --cp {degree}"
        return
    # Without the labels that DeepSpeed's loader has moved on, the first step has no loss and ends by itself.
    if not target.uses_deepspeed and seen.all_read and "maybe_context_parallel" not in words:
        yield (
            f"{name} never enters accelerator.maybe_context_parallel, which cuts its samples: every rank would compute"
            f" whole ones; put each step into it, or plan without --cp {degree}"
        )


def _alone(target: Target, seen: Seen) -> Iterator[str]:
    """A plain loop that joins its ranks in no way: each would train by itself, or the whole model on each."""
    brings = target.traits.wrapped_by
    if target.loop != "plain" or target.strategy.world_size == 1 or not brings:
        return
    if not seen.all_read or brings & (seen.use.names | seen.beside | {_wrapper(target)}):
        return
    named = " or ".join(sorted(brings))
    yield (
        f"{target.script.name} runs a plain loop of its own that never wraps its model in {named}: a launch cannot give"
        f" it {target.strategy.name}, and {target.strategy.world_size} independent jobs would run; wrap the model so,"
        " make the loop Accelerate's (accelerator.prepare), or plan for one GPU"
    )


def _starts_ranks(target: Target) -> Iterator[str]:
    """A script that starts a process for each rank: each that is launched would start all of them once more."""
    ranks = target.strategy.world_size
    if ranks > 1 and target.saved.starts_ranks:
        yield (
            f"{target.script.name} starts its ranks itself (torch.multiprocessing): launched as {ranks}, each would"
            f" start {ranks} more; run it without a launch (python {target.script.name}), or leave starting them to one"
        )


def _wrapper(target: Target) -> str:
    """What a captured script was seen to wrap its model in."""
    script = target.saved.workload.get("script")
    value = script.get("wrapper") if isinstance(script, Mapping) else None
    return value if isinstance(value, str) else ""


def agreed_norm(clips: Sequence[Clip]) -> float | None:
    """The one norm to which all calls clip; None where there is no call, or no such norm."""
    norms = {clip.norm for clip in clips}
    return norms.pop() if len(norms) == 1 else None


def _clipping(target: Target, told: Told, seen: Seen) -> Iterator[str]:
    name = target.script.name
    text = target.setting(_CLIP)
    asked = None if text is None else float(text)
    if target.in_trainer:
        if asked is not None and not told.knows("max_grad_norm"):
            yield (
                f"--set {_CLIP}={asked:g} does not reach {name}, which makes its TrainingArguments itself: write"
                f" max_grad_norm={asked:g} there, and leave the setting out"
            )
    elif target.uses_deepspeed:
        yield from _for_deepspeed(target, seen)
    elif asked is not None and not told.knows("max_grad_norm"):
        norm = agreed_norm(seen.clips) if seen.clips else 0.0
        if norm != asked:
            does = f"clips to {norm:g}" if norm else "does not clip" if norm == 0 else "clips to a norm of its own"
            where = f"{name}:{seen.clips[0].line}" if seen.clips else name
            yield (
                f"--set {_CLIP}={asked:g}, but {where} {does}, and under {target.strategy.name} the script alone clips:"
                f" write the norm there, or leave the setting out"
            )


def _for_deepspeed(target: Target, seen: Seen) -> Iterator[str]:
    """Its engine has stepped by the time that a script's own call comes."""
    by_value = next((clip for clip in seen.clips if clip.by_value), None)
    name = target.script.name
    if by_value is not None:
        yield (
            f"{name}:{by_value.line} clips gradients by value, which DeepSpeed cannot: clip to a norm, or plan with"
            " --strategy fsdp or ddp"
        )
    elif target.max_grad_norm is None and seen.clips:
        yield (
            f"{name}:{seen.clips[0].line} clips gradients to a norm that the script's text does not tell, and DeepSpeed"
            f" clips by its own file: name the norm with --set {_CLIP}=1.0, or whatever it is, 0 for none"
        )


def _batch(target: Target, told: Told, seen: Seen) -> Iterator[str]:
    """Where a rank's samples per optimizer step are known, and are not those of the plan."""
    strategy = target.strategy
    micro, steps = _micro_batch(target, told, seen), _steps(target, told, seen)
    if micro is None or steps is None:
        return
    planned = strategy.loop_batch_size * strategy.loop_steps
    if micro * steps == planned:
        return
    ranks = strategy.data_parallel
    yield (
        f"{micro * steps * ranks} samples would make an optimizer step, {planned * ranks} are planned:"
        f" {target.script.name} has micro batch {micro} and accumulation {steps}, the plan"
        f" {strategy.loop_batch_size} and {strategy.loop_steps}; plan with --micro-batch {micro}"
        f" --grad-accum {steps}, or change the script, which may ask current_plan()"
    )


def _micro_batch(target: Target, told: Told, seen: Seen) -> int | None:
    """Samples of a forward pass on one rank; None where nothing tells."""
    planned = target.strategy.loop_batch_size
    if "micro_batch_size" in told.by_user:
        given = told.user_counts.get("micro_batch_size")
        return planned if given == target.loader_batch else given
    if told.knows("micro_batch_size") or "micro_batch_size" in seen.set_inside:
        return planned
    return _captured(target, "micro_batch") or seen.batch.micro_batch


def _steps(target: Target, told: Told, seen: Seen) -> int | None:
    """Backward passes of an optimizer step; None where nothing tells."""
    name = "gradient_accumulation_steps"
    planned = target.strategy.loop_steps
    plugged = "gradient_accumulation_plugin" in seen.use.arguments
    if name in told.by_user:
        return told.user_counts.get(name)
    if name in seen.set_inside:
        return planned
    if target.loop == "accelerate" and not target.batch_is_users:
        # The environment beats what the Accelerator is given, a plugin the environment; DeepSpeed's file beats both.
        # Outside accumulate() every backward pass ends a step, and DeepSpeed's engine is told so too (accelerate
        # utils/deepspeed.py: DeepSpeedEngineWrapper.backward).
        if seen.use.accumulates and (target.uses_deepspeed or not plugged):
            return planned
        if target.uses_deepspeed:
            return 1
    elif told.knows(name):
        return planned
    return _captured(target, "grad_accum") or seen.batch.accumulation


def unknown(target: Target, told: Told, seen: Seen) -> Iterator[str]:
    """What neither reaches the script nor is known of it: one line each, with the reason."""
    for name, value in (
        ("micro_batch_size", _micro_batch(target, told, seen)),
        ("gradient_accumulation_steps", _steps(target, told, seen)),
    ):
        if value is None and name in told.reasons:
            yield told.reasons[name]
    planned, own = target.saved.workload.get("seq_len"), _captured(target, "seq_len")
    if "sequence_length" in told.reasons and own not in (None, planned):
        yield f"sequence length {planned}: the script's data has {own}"


def length_is_the_datas(target: Target, told: Told) -> bool:
    """Whether nobody knows, before the run, how long the script's samples are."""
    return "sequence_length" in told.reasons and _captured(target, "seq_len") is None


def _captured(target: Target, name: str) -> int | None:
    """What the script was seen to do when it was captured."""
    script = target.saved.workload.get("script")
    value = script.get(name) if isinstance(script, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
