"""What an engine is, for those who use one whatever it is called."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from gpu_plan.executor.records.engine import EngineJob

Where = Literal["queued", "running", "ended", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a job asks of an engine."""

    name: str
    """Of the job, as queues show it."""
    nodes: int
    ranks_per_node: int
    gpu: str | None
    """Name of the devices as the catalogue has it; None for CPU ranks."""

    @property
    def gpus_per_node(self) -> int:
        return 0 if self.gpu is None else self.ranks_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """A job as its engine sees it."""

    where: Where
    words: str
    """The engine's own: `PENDING (Resources)`."""
    exit_code: int | None = None
    """Of an ended job, where the engine tells it."""
    cancelled: bool = False
    """Whether somebody had it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user and the site tell an engine, checked."""

    values: Mapping[str, str] = field(default_factory=dict)
    """By the engine's own key."""
    setup: Sequence[str] = ()
    """Lines of shell before the launch on every node: modules, conda, a virtual environment."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for every rank, such as NCCL_SOCKET_IFNAME."""

    def flag(self, key: str, default: bool) -> bool:
        """A setting that is `true` or `false`."""
        return default if key not in self.values else self.values[key] == "true"


class Engine(Protocol):
    """One engine. Methods that ask its client raise UnreachableError in one line where it is not there."""

    @property
    def name(self) -> str:
        """As `--to` and `--on` take it."""

    @property
    def title(self) -> str:
        """As people call it."""

    @property
    def keys(self) -> Mapping[str, str]:
        """Settings that it knows, and what each means."""

    @property
    def flags(self) -> frozenset[str]:
        """Those of `keys` that are `true` or `false`."""

    @property
    def submit_file(self) -> str:
        """Name of the file that its client is given."""

    def exported(self, shape: Shape, settings: Settings, files: Mapping[str, str]) -> Mapping[str, str]:
        """Content of the files that run `command.sh` once on each node, by name. Pure. `files`: what else the folder
        holds, by path, for an engine that must be given it."""

    def command(self, folder: Path) -> Sequence[str]:
        """Words that submit an exported folder by hand. Pure."""

    def how_to(self, shape: Shape) -> Sequence[str]:
        """Lines of the folder's README: what to type to submit, to look and to end. Pure."""


class Places(Protocol):
    """What has a run's job, and what the supervisor inside it asks."""

    @property
    def name(self) -> str:
        """As `--on` takes it."""

    @property
    def title(self) -> str:
        """As people call it."""

    @property
    def leaves(self) -> int | None:
        """Exit code with which the supervisor leaves where it is to be started again; None where the engine itself ends
        it once it has queued the job."""

    @property
    def ask_seconds(self) -> float:
        """Between two questions how a job fares: a client may take its time to answer one."""

    def state(self, job: EngineJob) -> JobState:
        """How a job fares; `unknown` where nobody can say."""

    def cancel(self, job: EngineJob) -> None:
        """Ends a job."""

    def let_go(self, job: EngineJob) -> str:
        """Holds back the engine from starting again what is over, where a bad exit code makes it do so: what was done,
        in words; empty where it ends the job by itself."""

    def on_each_node(self, nodes: int) -> tuple[str, ...]:
        """Inside the job: words that start what follows them once on each node, numbered by PET_NODE_RANK."""

    def head(self) -> str:
        """Inside the job: the address at which the nodes meet."""

    def sweep(self) -> tuple[str, ...]:
        """Inside the job: a command that ends what still runs of its launches on the nodes; empty where nothing can."""

    def restarts(self) -> int:
        """Inside the job: how often the engine has started it anew."""

    def job_number(self) -> str:
        """Inside the job: its number."""

    def again(self) -> bool:
        """Inside the job: asks the engine to queue it again; whether that was granted. The caller then ends."""


class Runs(Engine, Places, Protocol):
    """An engine to which a run can be given."""

    def job_file(self, shape: Shape, settings: Settings, *, folder: Path, lead: Sequence[str], python_path: str) -> str:
        """Content of the submit file of a run whose `lead` words supervise it inside the job. Pure."""

    def check(self, settings: Settings) -> None:
        """UnreachableError where its client is not there."""

    def submitting(self, file: Path, settings: Settings) -> Sequence[str]:
        """Words with which the engine's own client would be given the submit file of a run. Pure."""

    def submit(self, file: Path, settings: Settings) -> EngineJob:
        """Gives the job to the engine; which one it is there. UsageError with the engine's own words where
        it refuses."""

    def from_outside(self, shape: Shape, settings: Settings) -> tuple[str, ...]:
        """Outside of any job: words that take nodes as a job of this shape would, start what follows them once on
        each, wait, and end with its code. Pure."""
