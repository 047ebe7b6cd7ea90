"""The largest value of an option at which a job still fits: searched over exact figures, not tried by the user."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.largest_model import largest_decoder, largest_model, on_devices_alone
from gpu_plan.planner.job.prepared import Openers
from gpu_plan.planner.job.ready import prepared
from gpu_plan.planner.job.training import trace_provider
from gpu_plan.planner.model.source.resolve import ModelSource, resolve
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.options.cluster import find_cluster
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.task import is_inference
from gpu_plan.planner.options.training.given import Given
from gpu_plan.planner.options.wishes.read import read_wishes, settled
from gpu_plan.planner.search.search import Found, search
from gpu_plan.planner.search.task import AnyTask
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.units import format_gib

_LENGTH = "seq-len"
_STEPS = {_LENGTH: 128, "micro-batch": 1, "lora-rank": 8}
"""Values are multiples of these."""
_MOST = {_LENGTH: 2**20, "micro-batch": 4096, "lora-rank": 4096}
_MODEL = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Largest:
    """What was found."""

    option: str
    value: int | str | None
    """None where not even the smallest fits; of models an id."""
    plan: str | None
    """How it is run there."""
    smallest: int | str
    unbounded: bool = False
    """Whether the search ended at the most that is asked about."""
    beyond: tuple[str, ...] = ()
    """Models that do not fit, the largest first."""
    fails_at: int | str | None = None
    """The next value that was tried, which does not fit."""
    reason: str | None = None
    """Why it does not: of the way that comes nearest."""
    spread: str | None = None
    """The plan by which it does all the same: with a copy over several GPUs, which is not searched at every value, or
    in the node's RAM."""
    offloads: bool = False
    """Whether that plan keeps in the node's RAM what the devices would hold."""
    positions: int | None = None
    """Those of the model, where the largest sample is longer."""


def find_largest(request: Request, what: str, note: Note) -> Largest:
    """The largest value of option `what` (without dashes) at which some plan fits.

    UsageError for an option that nothing bounds, for one that was given, and for a length that the model has not.
    """
    if what not in (*_STEPS, _MODEL):
        known = (*_STEPS, _MODEL)
        only = f"only {', '.join(known)} have a bound that is searched"
        raise UsageError(f"--max {what[:40]!r}: {only}.{did_you_mean(what, known, limit=1)}")
    words = dict(request.words)
    if is_inference(words) or request.model.endswith(".py"):
        raise UsageError(f"--max {what} is about training a model by name: leave --task infer and scripts out")
    if what in words:
        raise UsageError(f"--max {what} searches what --{what} gives: leave one of them out")
    if what == "lora-rank" and words.get("peft", "none") == "none":
        raise UsageError("--max lora-rank needs --peft lora or qlora")
    cluster = settled(find_cluster(request.gpus, request.settings), read_wishes(words))
    if what == _MODEL:
        return _largest_model(request, cluster, note)
    source = resolve(request.model, trust_remote_code=request.trust_remote_code, revision=request.revision)
    asked = _Asked(
        request=request,
        cluster=cluster,
        source=source,
        note=note,
        what=what,
        kept_on_devices="offload" not in words and not request.pinned and not cluster.gpu.is_cpu,
    )
    positions = asked.positions() if what == _LENGTH else None
    value, unbounded = bisected(asked.fits, _STEPS[what], _MOST[what])
    if value is None and asked.kept_on_devices:
        asked.kept_on_devices = False
        value, unbounded = bisected(asked.fits, _STEPS[what], _MOST[what])
    plan = None if value is None else asked.plans[value]
    beyond = None if unbounded else (value or 0) + _STEPS[what]
    spread, offloads, reason = (None, False, None) if beyond is None else asked.beyond(beyond)
    return Largest(
        option=what,
        value=value,
        plan=plan,
        smallest=_STEPS[what],
        unbounded=unbounded,
        fails_at=beyond,
        reason=reason,
        spread=spread,
        offloads=offloads,
        positions=None if positions is None or value is None or value <= positions else positions,
    )


def _largest_model(request: Request, cluster: Cluster, note: Note) -> Largest:
    """Of the family of the request's model, or of all decoders where it names none."""
    asked = request if request.model else on_devices_alone(request)
    found, plan, beyond = (largest_model if request.model else largest_decoder)(asked, cluster, note)
    smallest = beyond[-1] if beyond else request.model
    return Largest(
        option=_MODEL,
        value=found,
        plan=plan,
        smallest=smallest,
        unbounded=not beyond,
        beyond=tuple(beyond),
        fails_at=beyond[-1] if beyond else None,
        reason=_why_not(asked, beyond[-1], cluster, note) if beyond else None,
    )


def _why_not(request: Request, model: str, cluster: Cluster, note: Note) -> str | None:
    """Why the smallest of the models that do not fit does not."""
    source = resolve(model, trust_remote_code=request.trust_remote_code, revision=None)
    return reason_of(lambda: prepared(replace(request, model=model), cluster, source, note, Openers()).task)


def reason_of(make: Callable[[], AnyTask]) -> str | None:
    """Why a job that does not fit does not: of the way that comes nearest; of one that makes no sense what is said."""
    try:
        return _why(search(make()))
    except (InputError, UsageError, CannotSplitError) as problem:
        return str(problem)


def _why(found: Found[Any]) -> str | None:
    if found.plans:
        nearest = found.plans[0]
        lacks = nearest.conditions[0].words if nearest.conditions else None
        most, has = format_gib(nearest.high_bytes), format_gib(nearest.capacity_bytes)
        return f"{nearest.full_title} {lacks or f'may not fit: its allocator takes up to {most} GiB, has {has}'}"
    exact = [one for one in found.rejected if not one.judgement.states_only]
    return next((one.reason for one in (exact or found.rejected)), None)


def bisected(fits: Callable[[int], bool], step: int, most: int) -> tuple[int | None, bool]:
    """The largest multiple of `step` up to `most` that fits, where whatever is smaller than one that fits does too;
    and whether that is `most`. Doubled until something fails, then halved."""
    if not fits(step):
        return None, False
    low = step
    while low < most and fits(min(2 * low, most)):
        low = min(2 * low, most)
    if low >= most:
        return low, True
    high = min(2 * low, most)
    while high - low > step:
        middle = (low + high) // 2 // step * step
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low, False


@dataclass(slots=True, kw_only=True)
class _Asked:
    """Asks for one value after the other; traces are kept between them."""

    request: Request
    cluster: Cluster
    source: ModelSource
    note: Note
    what: str
    kept_on_devices: bool
    """Whether only what keeps to the devices counts: nobody gives a node's RAM for a larger batch unasked."""

    plans: dict[int, str] = field(default_factory=dict)
    providers: dict[str, TraceProvider] = field(default_factory=dict)

    def positions(self) -> int | None:
        """Of the model, where it tells; UsageError where it has no sequence."""
        task = self._task(_STEPS[_LENGTH])
        assert isinstance(task, TrainingTask)  # --max is of training
        spec = task.evaluator.provider.spec()
        if not spec.has_sequence:
            raise UsageError(f"--max seq-len: {spec.id} has no sequence to lengthen; --max micro-batch, perhaps")
        return spec.max_positions

    def fits(self, value: int) -> bool:
        """Whether some plan fits at `value`; what makes no sense there does not."""
        try:
            task = self._task(value, {"offload": "none"} if self.kept_on_devices else {})
            found = task.fitting()
        except (InputError, UsageError, CannotSplitError):
            return False
        if found is not None:
            self.plans[value] = task.words(found)
        return found is not None

    def beyond(self, value: int) -> tuple[str | None, bool, str | None]:
        """The plan with a copy over several GPUs, or in the node's RAM, that fits at `value`, and whether it is there;
        or why nothing does."""
        try:
            found = search(self._task(value))
        except (InputError, UsageError, CannotSplitError) as problem:
            return None, False, str(problem)
        if found.best is None:
            return None, False, _why(found)
        return found.best.full_title, found.best.offloads, None

    def _task(self, value: int, more: Mapping[str, str] = MappingProxyType({})) -> AnyTask:
        words = tuple({**dict(self.request.words), **more, self.what: str(value)}.items())
        request = replace(self.request, words=words)
        return prepared(request, self.cluster, self.source, self.note, Openers(traces=self._opened)).task

    def _opened(
        self, request: Request, cluster: Cluster, source: ModelSource, given: Given, note: Note
    ) -> TraceProvider:
        fresh = trace_provider(request, cluster, source, given, note)
        return self.providers.setdefault("" if fresh.adapter is None else fresh.adapter.key(), fresh)
