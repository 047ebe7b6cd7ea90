"""Traces that stay in memory between questions, with what each question may do about a missing one."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Generic, NoReturn, TypeVar

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.source.resolve import ModelSource, resolve
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.training.adapters import adapter_of
from gpu_plan.planner.options.training.given import Given
from gpu_plan.planner.plain.recent import Recent
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.entries import assumptions_of
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.provider import Provider, TraceProvider, Twins
from gpu_plan.planner.trace.storage import load
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.tui.engine.messages import TracePayload

T = TypeVar("T", bound=TraceProvider)


class UntracedError(Exception):
    """A trace is needed that nobody has made yet."""


class KeptTraces(TraceProvider):
    """Traces of the cache alone: what is missing is said, not made."""

    __slots__ = ()

    def take(self, parcel: TracePayload) -> None:
        """Keeps what another process traced."""
        self._spec = parcel.spec
        for variant, kept in parcel.traces:
            trace = load(kept)
            # One that is kept already stays: what was made of it is kept beside it.
            self._traces.setdefault((variant, trace.samples), trace)

    def _open_session(self, variant: StepVariant | None = None) -> NoReturn:
        raise UntracedError


@dataclass(slots=True)
class Watched:
    """A provider for one question: asks before every trace whether the answer is still wanted, knows what it used."""

    inner: Provider
    check: Callable[[], None]
    _used: dict[tuple[str, int], tuple[str, StepTrace]] = field(default_factory=dict)

    def spec(self) -> ModelSpec:
        self.check()
        return self.inner.spec()

    def trace(self, variant: StepVariant, micro_batch: int) -> StepTrace:
        self.check()
        found = self.inner.trace(variant, micro_batch)
        self._used[variant.key(), id(found)] = variant.key(), found
        return found

    def held(self) -> AbstractContextManager[None]:
        return self.inner.held()

    def static_trace(self, regime: Regime) -> StepTrace:
        self.check()
        return self.inner.static_trace(regime)

    def assumptions(self) -> tuple[list[str], list[str]]:
        """Of the traces that this question used."""
        return assumptions_of({id(trace): trace for _, trace in self._used.values()}.values())

    def used(self) -> tuple[tuple[str, StepTrace], ...]:
        """Each trace that this question used, behind the key of its variant."""
        return tuple(self._used.values())


class Providers(Generic[T]):
    """Providers by model, device, attention and adapter; the least recently used is forgotten."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._kept: Recent[T] = Recent()
        self._sources: dict[tuple[object, ...], ModelSource] = {}
        self._twins: Recent[Twins] = Recent()

    def source(self, request: Request) -> ModelSource:
        """The model's configuration, read once."""
        key = (request.model, request.trust_remote_code, request.revision)
        if key not in self._sources:
            self._sources[key] = resolve(
                request.model, trust_remote_code=request.trust_remote_code, revision=request.revision
            )
        return self._sources[key]

    def open(self, request: Request, cluster: Cluster, source: ModelSource, given: Given, note: Note) -> T:
        """As `gpu_plan.planner.job.training.trace_provider`, and kept."""
        device, attention, adapter = device_kind(cluster.gpu), given.attention or "sdpa", adapter_of(given, cluster)
        key = (source.digest, source.id, device, str(attention), adapter, request.use_cache)
        twins = self._twins.get((source.digest, source.id, request.use_cache), Twins)
        found = self._kept.get(
            key,
            lambda: self._kind(
                source=source,
                device=device,
                attention=attention,
                adapter=adapter,
                use_cache=request.use_cache,
                script_seconds=request.script_seconds,
                unwalled=request.unwalled,
                note=note,
                twins=twins,
            ),
        )
        found.note = note
        return found
