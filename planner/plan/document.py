"""The plan document: what `--json` prints and every report shows. Versioned; plain values only."""

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Literal

from gpu_plan.planner.notebook import shown
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.plan.codec import decode, dump, load_object, plain
from gpu_plan.planner.plan.figures import (
    CATEGORY_NAMES,
    AtPeak,
    CrowdedFigures,
    DegreeFigures,
    DevicePrice,
    Evidence,
    HostFigures,
    JobFigures,
    MemoryFigures,
    OutsideAllocator,
    RankFigures,
    SpeedFigures,
    StageFigures,
    StrategyChoice,
    TensorLine,
    UncertainTerm,
    Verdict,
)
from gpu_plan.planner.plan.inference import DevicePlacement, InferenceFigures, Placement
from gpu_plan.planner.plan.recipe import RecipeFigures, SeveralFigures
from gpu_plan.planner.plan.serving import ServingFigures
from gpu_plan.planner.units import format_gib
from gpu_plan.planner.workload.generation import InferWorkload
from gpu_plan.planner.workload.serving import ServeWorkload
from gpu_plan.planner.workload.training import Workload

__all__ = [
    "CATEGORY_NAMES",
    "SCHEMA_VERSION",
    "Alternative",
    "Assumption",
    "AtPeak",
    "Candidate",
    "Condition",
    "CrowdedFigures",
    "DegreeFigures",
    "DevicePlacement",
    "DevicePrice",
    "Evidence",
    "HostFigures",
    "InferenceFigures",
    "JobFigures",
    "MemoryFigures",
    "ModelFacts",
    "OutsideAllocator",
    "Placement",
    "PlanDocument",
    "RankFigures",
    "RankingFacts",
    "RecipeFigures",
    "SearchFacts",
    "ServingFigures",
    "SpeedFigures",
    "StageFigures",
    "StoredFacts",
    "StrategyChoice",
    "TensorLine",
    "UncertainTerm",
    "Verdict",
    "from_json",
    "to_json",
    "workload_document",
]

SCHEMA_VERSION = 1
_CLUSTER_KEYS: Mapping[str, type] = {
    "spec": str,
    "gpu": str,
    "gpus": int,
    "nodes": int,
    "gpus_per_node": int,
    "usable_bytes": int,
    "usable_basis": str,
}
"""What every cluster section has, whatever else it tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFacts:
    """A checkpoint's tensors as its headers give them."""

    parameters: int
    bytes: int
    by_dtype: Mapping[str, int]
    """Elements per torch dtype name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The model that is planned for."""

    id: str
    class_name: str
    model_type: str | None
    kind: str
    parameters: int
    """Elements, tied weights once."""
    trainable_parameters: int
    config_digest: str
    """sha256 of the canonical config; of a factory, of its files."""
    source: str | None = None
    """Where the config came from: `catalog`, `cache`, `hub`, `folder`, `config`, `factory`."""
    revision: str | None = None
    max_positions: int | None = None
    vocab_size: int | None = None
    has_sequence: bool = True
    stored: StoredFacts | None = None
    notes: tuple[str, ...] = ()

    @property
    def several(self) -> bool:
        """Whether it is several models of one job, whose parameters are counted together: `A + B`."""
        return " + " in self.class_name

    def __post_init__(self) -> None:
        if not 0 <= self.trainable_parameters <= self.parameters:
            raise ValueError(f"{self.trainable_parameters} trainable parameters of {self.parameters} are invalid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """Something that the figures rest on."""

    text: str
    basis: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something that a plan needs and that is not known to be there."""

    needs: str
    """`host RAM`, `NVMe`."""
    bytes: int
    """Of each node; 0 of what has no bytes."""
    option: str
    """The option that settles it."""
    tokens: int | None = None
    """Of an average sample, at most."""

    @property
    def words(self) -> str:
        """`needs 180 GiB of node RAM, which is not known`."""
        if self.tokens is not None:
            settles = f"{self.option} settles it"
            return f"needs samples of {self.tokens:,} tokens or fewer on average, which is not known ({settles})"
        what = {"host RAM": "node RAM"}.get(self.needs, f"{self.needs} on each node")
        return f"needs {format_gib(self.bytes, 0)} GiB of {what}, which is not known ({self.option} settles it)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Something else that could be done, evaluated: it fits."""

    change: str
    """An option, or the GPUs."""
    plan: str
    """How it would be run."""
    cluster: str
    device_used_bytes: int
    capacity_bytes: int
    host_bytes_per_node: int = 0
    samples_per_second: float
    """Of all devices together."""
    tokens_per_second: float | None = None
    """Likewise; None for models without a sequence."""
    usd_per_hour: float | None = None
    """Of all devices at the cheapest published price; None where there is none."""
    at_most: bool = False
    """Whether its speed is the most that it can be: a server's is computed from the least that a step takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingFacts:
    """How the plans were ordered."""

    prefer: str
    rules: tuple[str, ...]
    """In the order in which they decide."""
    why: str | None = None
    """Why the first plan goes before the second, in one sentence; None where there is no second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFacts:
    """How much was looked at."""

    kinds: int
    """Combinations of strategy, degrees, offload and checkpointing that were explored."""
    candidates: int
    """Of those, with their micro batches, what was evaluated."""
    left_out: tuple[str, ...] = ()
    """Kinds that would have taken a trace of their own and cannot come first, each with the reason."""
    for_alternatives: int = 0
    """Candidates that were evaluated beside them, for what else could be done."""
    untraced_alternatives: tuple[str, ...] = ()
    """Changes that were not evaluated, since each would have taken a trace of its own; `--alternatives` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to run the job, judged."""

    strategy: StrategyChoice
    verdict: Verdict
    fits: bool = field(init=False)
    """Whether the verdict is `fits`."""
    memory: MemoryFigures | None = None
    """None where it was refused before it was evaluated."""
    speed: SpeedFigures | None = None
    reason: str | None = None
    """Why it lost, in words and numbers; None for a plan."""
    command: str | None = None
    """The exact command that runs it."""
    units: tuple[str, ...] = ()
    """Classes whose instances FSDP wraps one by one; empty for other strategies, and in older files."""
    chosen: Mapping[str, str] = field(default_factory=dict)
    """Settings, by `--set` key, that the planner chose for the run, for the engine's own would end it."""
    explain: tuple[TensorLine, ...] | None = None
    """Largest tensors standing at the peak, largest first; None where not asked for."""
    placement: Placement | None = None
    """Of inference: which module stands where; None for training, and in older files."""
    inference: InferenceFigures | None = None
    """Of inference: figures of load, prefill and decode; None likewise."""
    stages: tuple[StageFigures, ...] = ()
    """Of a pipeline: what each of its ranks takes, first to last; empty for others, and in older files."""
    ranks: tuple[RankFigures, ...] = ()
    """Of the best plan: what each kind of rank takes, that of rank 0 first; one where all take the same. Empty for
    others, for strategies whose worst rank alone is told, and in older files."""
    crowded: CrowdedFigures | None = None
    """Of the best plan, where ranks hold experts: what one takes to which more tokens go than to others; None for
    others, and in older files."""
    serving: ServingFigures | None = None
    """Of a server: its share, its cache and what it holds; None for other jobs, and in older files."""
    recipe: RecipeFigures | None = None
    """Of a job of several models: each of them, and the phases; None for other jobs, and in older files."""
    several: SeveralFigures | None = None
    """Of a job document: each of its models, and its phases; None for other jobs, and in older files."""
    conditions: tuple[Condition, ...] = ()
    """What it needs and what is not known to be there: with one it is `tight` at best."""
    on_front: bool | None = None
    """Whether no other plan that fits beats it in time, memory of the device and RAM of the node at once; None for
    what does not fit, and in older files."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "fits", self.verdict == "fits")
        if self.fits and self.memory is None:
            raise ValueError("a candidate that fits needs its memory figures")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument:
    """All that one run of `plan` found. `plans` are best first, those that fit before the tight ones."""

    schema_version: int = SCHEMA_VERSION
    command: str
    """The command line that made it."""
    created_with: Mapping[str, str]
    """Versions by package name."""
    model: ModelFacts
    cluster: Mapping[str, object]
    """As `gpu_plan.planner.hardware.cluster.cluster_document` gives it."""
    workload: Mapping[str, object]
    """As `workload_document` gives it: each value, and in `basis` where it came from."""
    plans: tuple[Candidate, ...]
    rejected: tuple[Candidate, ...]
    assumptions: tuple[Assumption, ...] = ()
    warnings: tuple[str, ...] = ()
    nearest_change: str | None = None
    """When nothing fits: the smallest change that would."""
    stack: Mapping[str, object] | None = None
    """What is known of who runs the loop, as `planner.workload.stacks.registry.stack_document` gives it: each fact with
    its source. None for inference, and in older files."""
    headline: str | None = None
    """What has to be known before any figure is read; most jobs have none."""
    prices: tuple[DevicePrice, ...] = ()
    """Of one device, where anybody published any; cheapest first."""
    ranking: RankingFacts | None = None
    """None in older files."""
    search: SearchFacts | None = None
    """None in older files."""
    whole_job: JobFigures | None = None
    """Of the best plan, where it was said how many tokens the job has."""
    alternatives: tuple[Alternative, ...] = ()
    """What else could be done, the smallest change first: where nothing fits, and where it was asked for."""

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema_version is {self.schema_version}, not {SCHEMA_VERSION}")
        settle_sections(self)
        verdicts = [candidate.verdict for candidate in self.plans]
        if "no" in verdicts or verdicts != sorted(verdicts):
            raise ValueError("plans must hold those that fit, then the tight ones, and no others")
        for candidate in self.rejected:
            if candidate.verdict != "no" or not candidate.reason:
                raise ValueError("a rejected candidate needs the verdict 'no' and a reason")

    def _repr_html_(self) -> str | None:
        return shown("plan_fragment", self)

    @property
    def best(self) -> Candidate | None:
        """The first plan, or None where nothing fits even tightly."""
        return self.plans[0] if self.plans else None


def settle_sections(document: object) -> None:
    """Bring a document's free-form sections to plain JSON values and check what every reader relies on."""
    for name in ("cluster", "workload"):
        object.__setattr__(document, name, plain(getattr(document, name)))
    cluster: Mapping[str, object] = getattr(document, "cluster")  # noqa: B009
    for key, kind in _CLUSTER_KEYS.items():
        if not isinstance(cluster.get(key), kind) or isinstance(cluster.get(key), bool):
            raise ValueError(f"cluster.{key} is {cluster.get(key)!r}, not of type {kind.__name__}")
    workload: Mapping[str, object] = getattr(document, "workload")  # noqa: B009
    basis = workload.get("basis")
    if not isinstance(basis, dict) or set(basis) != set(workload) - {"basis"}:
        raise ValueError("workload.basis must tell the origin of every value of the workload, and no other")


def workload_document(workload: Workload | InferWorkload | ServeWorkload) -> dict[str, object]:
    """The `workload` section: every value by its name, and under `basis` where each came from.

    A value still None is one that the search chooses; the plans hold what was chosen.
    """
    values: dict[str, object] = {}
    for entry in fields(workload):
        if entry.name != "basis":
            value = getattr(workload, entry.name)
            values[entry.name] = dict(value) if entry.name in ("settings", "script") else value
    origin = dict(workload.basis)
    basis = {name: origin.get(name, "searched" if value is None else "default") for name, value in values.items()}
    return {**values, "basis": basis}


def to_json(document: PlanDocument) -> str:
    """The document as JSON: the same bytes for the same document, ASCII only, without a final newline."""
    return dump(document)


def from_json(text: str | bytes, where: str) -> PlanDocument:
    """The document in `text`; `where` names it in messages. Keys of other versions' making are passed over.

    Raises InputError in one line for anything that `to_json` could not have written.
    """
    value = load_object(text, where)
    check_version(value, where)
    return decode(PlanDocument, value, where)


VersionedKind = Literal["plan document", "saved plan"]


def check_version(value: Mapping[str, object], where: str, kind: VersionedKind = "plan document") -> None:
    """InputError unless `value` says that it is of the schema that this version reads."""
    from gpu_plan.planner.errors import InputError

    version = value.get("schema_version")
    if version is None:
        raise InputError(f"{where} is not a {kind}: it has no schema_version; make it with `plan MODEL --gpus ...`")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise InputError(
            f"{where}: schema_version is {version!r:.40}, this version reads {SCHEMA_VERSION}:"
            " make the plan again, or update gpu-plan"
        )
