"""From a configuration file's content to options of `plan`: pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.beside import say_beside
from gpu_plan.planner.from_config.formats.trainers.llamafactory_ppo import as_ppo
from gpu_plan.planner.from_config.harmless import harmless
from gpu_plan.planner.from_config.jobs import as_recipe, job_of
from gpu_plan.planner.from_config.kinds import Kind, find_kind, recognise
from gpu_plan.planner.from_config.reading import Fetch, Reading, Said
from gpu_plan.planner.from_config.shell.launched import Launched
from gpu_plan.planner.from_config.shell.spread import Spread
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.from_config.unread import strange
from gpu_plan.planner.strategy.known import unsharded
from gpu_plan.planner.workload.recipes import PPO

_ORDER = (
    "recipe", "critic", "generations", "prompt-len", "completion-len", "reference", "reward-model", "vllm",
    "gpu-memory-utilization", "vllm-tp", "vllm-sleep", "strategy", "dp-replicate", "tp", "cp", "offload", "precision",
    "optimizer", "micro-batch", "grad-accum", "global-batch",
    "seq-len", "checkpointing", "attention", "peft", "lora-rank", "lora-targets", "fused-loss", "stack",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What a file means to `plan`."""

    path: str
    kind: str
    title: str
    signs: tuple[str, ...]
    """Keys by which the kind was recognised; none where it was said."""
    model: str | None
    gpus: str | None
    """As `--gpus` takes it; None where the file says no type of GPU and none was named."""
    processes: int | None
    nodes: int | None
    options: tuple[Said, ...]
    approximated: tuple[str, ...]
    passed_over: tuple[str, ...]
    """Keys without a meaning for a plan."""
    not_understood: tuple[str, ...]
    """Those of them of which nothing here knows that they change neither memory nor time."""
    notes: tuple[str, ...]


def convert(
    content: Mapping[str, object],
    path: str,
    fetch: Fetch,
    *,
    kind: str | None = None,
    world: int | None = None,
    otherwise: int | None = None,
    launched: Launched | None = None,
) -> Converted:
    """What `content`, read from `path`, says.

    `world` is the number of processes that the user has named, `otherwise` the one where the file names none either;
    `launched` the command that gives `content` to a script.

    Raises InputError or UsageError in one line for an unknown kind, a value of the wrong form or a contradiction, and
    UsageError for parallelism that is not planned as the tool does it.
    """
    found, signs = (find_kind(kind), ()) if kind else recognise(content, path)
    job = job_of(content, found.name, path, None if launched is None else launched.script)
    table = Table(content, path)
    reading = Reading(table=table, fetch=fetch, asked=world, otherwise=otherwise, several=job is not None)
    spread = None if launched is None else Spread(reading, launched)
    if spread is not None:
        spread.before()
    found.read(reading)
    if spread is not None:
        spread.after()
    if job is not None and job.recipe == PPO:
        as_ppo(reading, job.source)
    elif job is not None:
        as_recipe(reading, job)
    _plain(reading)
    _whole_batch(reading)
    converted = _converted(reading, found, signs, path)
    if kind is None or launched is not None:
        _of_this_kind(converted, content)
    return converted


_FEW = 4
"""Keys without a meaning that any file may have."""


def _of_this_kind(converted: Converted, content: Mapping[str, object]) -> None:
    """InputError where what decides the job stands in words that its kind does not have: it is another tool's file."""
    words = strange((*converted.not_understood, *_inside(converted.not_understood, content)))
    read = len(content) - len(converted.passed_over)
    if len(converted.signs) == 1 and len(converted.not_understood) > max(_FEW, read):
        words = words or converted.not_understood  # one word that two tools share, among many that only one has
    if words:
        raise InputError(
            f"{converted.path} has {', '.join(words[:3])}, of which {converted.title} knows nothing, beside"
            f" {', '.join(converted.signs[:2]) or 'its keys'}: it is another tool's, say the job with the options of"
            f" `plan MODEL`, or read it with --kind {converted.kind}"
        )


def _inside(names: Iterable[str], content: Mapping[str, object]) -> Iterable[str]:
    """The keys of tables that were not understood as a whole."""
    for name in names:
        table = content.get(name)
        if isinstance(table, Mapping):
            yield from (f"{name}.{key}" for key in table)


def _converted(reading: Reading, kind: Kind, signs: Iterable[str], path: str) -> Converted:
    say_beside(reading)
    options = sorted(
        reading.said.values(), key=lambda said: (said.setting, said.option if said.setting else _place(said.option))
    )
    passed_over = reading.passed_over()
    return Converted(
        path=path,
        kind=kind.name,
        title=kind.title,
        signs=tuple(signs),
        model=reading.model,
        gpus=_cpu(reading) if reading.cpu else None,
        processes=reading.processes,
        nodes=reading.nodes,
        options=tuple(options),
        approximated=tuple(reading.approximated),
        passed_over=tuple(passed_over),
        not_understood=tuple(key for key, says in passed_over.items() if says and not harmless(key)),
        notes=tuple(reading.notes),
    )


def _place(option: str) -> str:
    return f"{_ORDER.index(option):02d}"


def _cpu(reading: Reading) -> str:
    count = reading.processes or 1
    return "cpu" if count == 1 else f"{count}xcpu"


def _plain(reading: Reading) -> None:
    """Where nothing else says how the model is spread the number of processes decides: one device alone, or several."""
    if not reading.plain:
        return
    count, alone, several = reading.count, unsharded(1).name, reading.many or unsharded(2).name
    if count is None:
        how = "the file shards nothing: on" if reading.many is None else "on"
        reading.notes.append(f"{how} one GPU that is --strategy {alone}, on more --strategy {several}")
        return
    because = "nothing is sharded, " if reading.many is None else ""
    processes = f"{because}{count} process{'es' * (count > 1)}"
    reading.say("strategy", alone if count == 1 else several, processes)


def _whole_batch(reading: Reading) -> None:
    """DeepSpeed holds train_batch_size to micro batch x accumulation x processes."""
    count = reading.count
    whole, micro, steps = (reading.value(name) for name in ("global-batch", "micro-batch", "grad-accum"))
    if whole is None or micro is None:
        return
    if steps is not None and count is not None and int(whole) != int(micro) * int(steps) * count:
        raise reading.contradiction(
            f"a global batch of {whole} is not micro batch {micro} x {steps} accumulation steps x {count} processes"
        )
    if steps is not None:
        del reading.said["global-batch"]
