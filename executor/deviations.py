"""Where what ran is not what was planned: the plan against what the ranks saw of themselves. Pure.

A launcher's exit code does not say it: a configuration for two ranks can run one process, or two jobs that know
nothing of each other, and an FSDP configuration can run DDP, each to a successful end.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpu_plan.executor.records.rank import Actual, RankRecord
from gpu_plan.planner.plan.figures import StrategyChoice
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.strategy.known import NOT_BUILT, known_traits
from gpu_plan.planner.workload.adapters import stored_adapters
from gpu_plan.planner.workload.optimizers.registry import optimizers
from gpu_plan.planner.workload.optimizers.traits import Ran
from gpu_plan.planner.workload.precisions import PRECISIONS, by_launcher


def deviations(saved: SavedPlan, records: Iterable[RankRecord]) -> tuple[str, ...]:
    """One line for each way in which the ranks of an attempt differ from the plan; empty where they follow it.

    What a rank did not see is not compared. A line that holds for some ranks only begins with their numbers.
    """
    ranks = sorted(records, key=lambda record: record.rank)
    if not ranks:
        return ()
    lines = list(_processes(saved.plan.strategy, ranks))
    by_line: dict[str, list[int]] = {}
    for record in ranks:
        for line in _of_rank(saved, record):
            by_line.setdefault(line, []).append(record.rank)
    for line, numbers in by_line.items():
        everywhere = len(numbers) == len(ranks)
        lines.append(line if everywhere else f"rank {', '.join(map(str, numbers))}: {line}")
    return tuple(lines)


def _processes(planned: StrategyChoice, ranks: Sequence[RankRecord]) -> Iterator[str]:
    """How many processes ran, and whether they were one job."""
    joined = [record for record in ranks if record.actual.world_size is not None]
    sizes = {record.actual.world_size for record in joined}
    if planned.world_size > 1 and len(ranks) == 1 and ranks[0].world_size == 1:
        yield f"one process ran alone, the plan has {planned.world_size} ranks: the launcher started no others"
    elif len(ranks) > 1 and len(joined) == len(ranks) and (sizes == {1} or _all_alone(ranks)):
        yield (
            f"{len(ranks)} processes ran as independent jobs, each training the whole model by itself: nothing "
            f"joins their gradients, the plan has {planned.world_size} ranks that work together"
        )
    else:
        for size in sorted(size for size in sizes if size is not None and size != planned.world_size):
            yield f"the world size was {size}, the plan has {planned.world_size} ranks"


def _all_alone(ranks: Sequence[RankRecord]) -> bool:
    """Whether no rank's model was wrapped in anything that speaks to the others."""
    return all(_ran_alone(record.actual) for record in ranks)


def _ran_alone(actual: Actual) -> bool:
    """Whether nothing that spreads a model was found around it."""
    traits = known_traits(actual.strategy)
    return traits is not None and traits.one_device


def _of_rank(saved: SavedPlan, record: RankRecord) -> Iterator[str]:
    actual, planned = record.actual, saved.plan.strategy
    yield from _strategy(planned, actual)
    yield from _degrees(planned, actual)
    yield from _model(saved, actual)
    yield from _precision(saved, actual)
    yield from _batch(saved, actual)
    if record.summary.steps:
        yield from _steps(saved, actual)


def _strategy(planned: StrategyChoice, actual: Actual) -> Iterator[str]:
    if actual.strategy is None or actual.strategy == planned.name or planned.name in NOT_BUILT:
        return
    if _ran_alone(actual) and planned.world_size == 1:
        return  # one device has nothing to share out: a wrapper may well be left away
    around = ", ".join(actual.wrapped_classes[:3])
    yield f"the strategy was {actual.strategy}, planned is {planned.name} (the model: {around})"


def _degrees(planned: StrategyChoice, actual: Actual) -> Iterator[str]:
    found = actual.tensor_parallel
    if found is not None and found != planned.tensor_parallel and actual.strategy == planned.name:
        yield f"{found} ranks computed a copy of the model together, planned are {planned.tensor_parallel}"
    held = actual.expert_parallel
    if held is not None and held != planned.expert_parallel and actual.strategy == planned.name:
        yield f"{held} ranks held the experts between them, planned are {planned.expert_parallel}"


def _model(saved: SavedPlan, actual: Actual) -> Iterator[str]:
    for name, planned, found in (
        ("parameters", saved.called_parameters, actual.parameters),
        ("trainable parameters", saved.model.trainable_parameters, actual.trainable_parameters),
    ):
        if saved.model.several and name == "parameters" and found is not None and found < planned:
            continue  # a frozen model beside the one that is trained is called by no training step, and not seen
        if found is not None and found != planned and not _tokens_added(actual, found - planned):
            yield f"the model has {found:,} {name}, the planned one {planned:,}"


def _tokens_added(actual: Actual, difference: int) -> int:
    """How many tokens more (less, where negative) the embeddings hold; 0 where that does not explain the difference."""
    one = actual.parameters_per_added_token
    return difference // one if one and difference % one == 0 else 0


def resized(saved: SavedPlan, records: Iterable[RankRecord]) -> str:
    """What the script's resized embeddings add to the planned model, in words; empty where nothing."""
    for record in records:
        if record.actual.parameters is None:
            continue
        difference = record.actual.parameters - saved.called_parameters
        tokens = _tokens_added(record.actual, difference)
        if tokens:
            return (
                f"the script resized its embeddings by {tokens:+,} tokens: {difference:+,} parameters beside the plan's"
            )
    return ""


def _precision(saved: SavedPlan, actual: Actual) -> Iterator[str]:
    planned = saved.plan.strategy.precision
    mixed = actual.mixed_precision
    traits = PRECISIONS.get(planned)
    if mixed is None or traits is None or not traits.trains:
        return
    weights = _main_dtype(actual.parameter_dtypes)
    plain = not stored_adapters(saved.workload.get("peft")).adapts
    if traits.is_pure:
        if weights not in (None, traits.dtype):
            yield f"the weights are {weights}, planned is {planned} (weights and computation in {traits.dtype})"
        elif mixed not in (traits.launcher, traits.deepspeed):
            yield f"the precision was {_called(mixed)}, planned is {planned}"
        return
    if mixed != traits.launcher:
        yield f"the precision was {_called(mixed)}, planned is {planned}"
    # DeepSpeed keeps fp32 weights in its optimizer; an adapter's frozen base may have any dtype.
    elif plain and weights not in (None, "float32") and not _has_masters(actual):
        yield f"the weights are {weights}, planned is {planned}, with weights in float32"


def _has_masters(actual: Actual) -> bool:
    traits = known_traits(actual.strategy)
    return traits is not None and traits.uses_deepspeed


def _called(mixed: str) -> str:
    """What accelerate calls so, in the words of `--precision`."""
    known = by_launcher(mixed)
    return mixed if known is None else str(known) if known.is_mixed else "no mixed precision"


def _main_dtype(dtypes: Mapping[str, int]) -> str | None:
    return max(dtypes, key=lambda name: dtypes[name]) if dtypes else None


def _batch(saved: SavedPlan, actual: Actual) -> Iterator[str]:
    planned = saved.plan.strategy
    found, rows = actual.micro_batch_size, saved.rows_of_a_call
    if found is not None and found != rows:
        of = "" if rows == planned.loop_batch_size else f" rows, of {planned.loop_batch_size} samples"
        yield f"the micro batch was {found}, planned is {rows}{of}"
    length = saved.workload.get("seq_len")
    if not saved.model.has_sequence or not isinstance(length, int) or actual.sequence_length is None:
        return
    lengths = [shape[1] for shape in actual.batch_shapes if len(shape) > 1]
    longest = max([actual.sequence_length, *lengths]) * planned.context_parallel
    if longest > length:
        yield f"sequences were up to {longest} tokens long, planned is {length}: memory was underestimated"
    elif longest < length:
        yield f"sequences were at most {longest} tokens long, planned is {length}"


def _steps(saved: SavedPlan, actual: Actual) -> Iterator[str]:
    planned = saved.plan.strategy
    steps = actual.gradient_accumulation_steps
    if steps is not None and steps != planned.loop_steps:
        yield (
            f"{steps} backward passes made an optimizer step, planned are {planned.loop_steps} (gradient accumulation)"
        )
    if actual.checkpointing is not None and actual.checkpointing != (planned.checkpointing != "none"):
        state = "on" if actual.checkpointing else "off"
        yield f"activation checkpointing was {state}, planned is {planned.checkpointing}"
    yield from _clipping(saved, actual)
    yield from _replaced(actual)
    yield from _compilation(saved, actual)
    name = str(saved.workload.get("optimizer", ""))
    if actual.optimizers and name and not any(_is_optimizer(name, found) for found in actual.optimizers):
        yield f"the optimizer was {', '.join(actual.optimizers)}, planned is {name}"


def _clipping(saved: SavedPlan, actual: Actual) -> Iterator[str]:
    """What was asked for is what the user set, else what the script called; DeepSpeed's engine goes by its file."""
    settings = saved.workload.get("settings")
    given = settings.get("clip.max_norm") if isinstance(settings, Mapping) else None
    script = actual.clipping_asked or 0.0
    ran, who = (script, "the script") if actual.clipping_of_engine is None else (actual.clipping_of_engine, "DeepSpeed")
    asked, whose = (script, "the script asks for") if given is None else (float(str(given)), "planned is")
    if ran != asked:
        yield f"{who} {_clips(ran)}, {whose} {f'norm {asked:g}' if asked else 'no clipping'}"


def _replaced(actual: Actual) -> Iterator[str]:
    """Accelerate gives DeepSpeed's CPU Adam the place of any optimizer whose state is offloaded."""
    taken = any("DeepSpeedCPUAdam" in name for name in actual.optimizers)
    other = [name for name in actual.optimizers_given if "adam" not in name.lower()]
    if taken and other:
        yield f"DeepSpeed's CPU Adam stepped in place of the script's {', '.join(other)}: offload none keeps it"


def _clips(norm: float) -> str:
    return f"clipped gradients to norm {norm:g}" if norm else "did not clip gradients"


def _compilation(saved: SavedPlan, actual: Actual) -> Iterator[str]:
    settings = saved.workload.get("settings")
    backend = settings.get("compile.backend") if isinstance(settings, Mapping) else None
    if actual.compiled is False and backend is not None:
        yield f"nothing was compiled, planned is torch.compile with the backend {backend}"
    # A plan made from the script itself has said so already.
    if actual.compiled and backend is None and not saved.model.id.endswith(".py"):
        yield "the model was compiled, the plan counts its step as written (--set compile.backend=... says so)"


def _is_optimizer(planned: str, found: str) -> bool:
    """Whether a class (`torch.optim.adamw.AdamW (fused)`) is what the plan calls `adamw-fused`; one that this version
    does not know is not compared."""
    path, _, variant = found.partition(" ")
    parts = path.split(".")
    traits = optimizers().get(planned)
    ran = Ran(package=parts[0], kind=parts[-1].lower(), fused=variant == "(fused)")
    return traits is None or traits.is_what_ran(ran)
