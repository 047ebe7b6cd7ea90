"""What a configuration file turns out to say, gathered key by key, contradictions refused."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.workload.stacks.registry import Stack

Fetch = Callable[[str, str], Mapping[str, object]]
"""Content of another configuration file by its path as written, and the key that names it; PlanError if it cannot."""


def of_several_models(job: str, because: str = "") -> UsageError:
    """What to raise for a job of several models that no recipe is; `job` begins with the file."""
    why = f": {because}" if because else ""
    return UsageError(
        f"{job}, a job of several models{why}: no recipe plans it; say its models and phases as a job document"
        " (plan JOB.toml), or plan the script that runs it (plan train.py)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One option of `plan`, and what it follows from."""

    option: str
    """Name without dashes, or a key of `--set`."""
    value: str
    source: str
    """`mixed_precision: bf16`, or whose default it is."""
    setting: bool = False


@dataclass(slots=True, kw_only=True)
class Reading:
    """Gathers; `table` is the file's top level."""

    table: Table
    fetch: Fetch
    said: dict[str, Said] = field(default_factory=dict)
    approximated: list[str] = field(default_factory=list)
    """Lines on keys that change the job in a way that no plan of this version follows."""
    notes: list[str] = field(default_factory=list)
    model: str | None = None
    processes: int | None = None
    """Of all nodes together."""
    nodes: int | None = None
    cpu: bool = False
    plain: bool = False
    """Whether the number of processes alone says how the model is spread: one device, or all of them by `many`."""
    many: str | None = None
    """The strategy of several processes where it is not DDP."""
    several: bool = False
    """Whether it is a job of several models, which a trainer of TRL's runs: its configs share SFTConfig's defaults."""
    asked: int | None = None
    """Processes that the user has named."""
    otherwise: int | None = None
    """Processes where neither the user nor the file says."""
    _more: list[Table] = field(default_factory=list)

    def say(self, option: str, value: object, source: str, *, setting: bool = False) -> None:
        """Notes an option; InputError where another key has said otherwise."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        before = self.said.setdefault(option, Said(option=option, value=text, source=source, setting=setting))
        if before.value != text:
            raise InputError(
                f"{self.table.where}: {source} means {option} {text}, but {before.source} means {before.value}:"
                " take one away"
            )

    def set(self, key: str, value: object, source: str) -> None:
        """Notes a `--set` key."""
        self.say(key, value, source, setting=True)

    @property
    def count(self) -> int | None:
        """Processes of the job; None where nobody says. Of use once the file's own number has been read."""
        return self.asked or self.processes or self.otherwise

    @property
    def trainer(self) -> bool:
        """Whether transformers' Trainer runs the loop: it fills in what a DeepSpeed file leaves open."""
        stack = self.value("stack")
        return stack is not None and Stack(stack).traits.is_trainer

    def value(self, option: str) -> str | None:
        """What has been noted for an option."""
        found = self.said.get(option)
        return None if found is None else found.value

    def approximate(self, line: str) -> None:
        """Notes what the plan does not follow."""
        self.approximated.append(line)

    def contradiction(self, line: str) -> InputError:
        """What to raise for keys that exclude each other."""
        return InputError(f"{self.table.where}: {line}")

    def other(self, path: str, key: str) -> Table:
        """The top level of another file that this one names."""
        table = Table(self.fetch(path, key), path, "")
        self._more.append(table)
        return table

    def inner(self, content: Mapping[str, object], key: str) -> Table:
        """A table that stands under `key` in place of a file's name."""
        table = Table(content, self.table.where, f"{key}.")
        self._more.append(table)
        return table

    def passed_over(self) -> Mapping[str, bool]:
        """Keys that have no meaning for a plan, in order, those of another file with its name, and whether they say
        anything: an empty one does not."""
        found = dict(self.table.left())
        for table in self._more:
            here = table.where == self.table.where
            found |= {name if here else f"{table.where}: {name}": says for name, says in table.left()}
        return found
