"""Who evaluates a request: a model or a script that trains, or a model that generates; imported when asked for."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from gpu_plan.planner.job.prepared import Openers
from gpu_plan.planner.job.run import run_job
from gpu_plan.planner.options.request import Answer, Note, Request
from gpu_plan.planner.options.task import is_inference
from gpu_plan.planner.plan.document import TensorLine
from gpu_plan.planner.plan.drawn.lanes import Lane
from gpu_plan.planner.trace.provider import Provider, TraceProvider
from gpu_plan.tui.engine.evaluate import Breakable, Replays
from gpu_plan.tui.engine.kept.providers import KeptTraces, Providers, Watched
from gpu_plan.tui.engine.messages import AnyParcel, CaptureParcel, GenerationParcel, Picture, TracePayload, Wanted

if TYPE_CHECKING:
    from gpu_plan.tui.engine.infer import Generated
    from gpu_plan.tui.engine.kept.captures import Captures


class Evaluates(Protocol):
    """One kind of job."""

    def pictures(self, request: Request, wanted: Wanted = "each") -> Iterator[Picture]: ...

    def prepared(self, request: Request) -> Iterator[None]: ...

    def tensors(self, request: Request) -> tuple[TensorLine, ...]: ...

    def lanes(self, request: Request) -> tuple[Lane, ...]: ...

    def parcel(self, request: Request, note: Note, check: Callable[[], None]) -> AnyParcel: ...


class Evaluations:
    """All kinds; `kept_alone`: from traces that are kept, none is made. `breakable`: as `Replays` takes it."""

    def __init__(self, *, kept_alone: bool, breakable: Breakable = nullcontext) -> None:
        self._kept_alone, self._breakable = kept_alone, breakable
        self._providers: Providers[Any] = Providers(KeptTraces if kept_alone else TraceProvider)
        self._models = Replays(self._providers, breakable=breakable)

    def of(self, request: Request) -> Evaluates:
        """Who evaluates it. Raises PlanError for options of another task."""
        if is_inference(dict(request.words)):
            return self._generated
        return self._scripts if request.model.endswith(".py") else self._models

    def take(self, parcel: AnyParcel) -> None:
        """Keeps what another process traced."""
        if isinstance(parcel, TracePayload):
            self._models.take(parcel)
        elif isinstance(parcel, GenerationParcel):
            self._generated.take(parcel)
        elif isinstance(parcel, CaptureParcel):
            self._scripts.take_captures(parcel)

    def run(self, request: Request, note: Note, check: Callable[[], None]) -> Answer:
        """The whole answer of the main job. Raises as it does, and whatever `check` does."""

        def models(*args: Any) -> Provider:
            return Watched(self._providers.open(*args), check)

        generations = self._generated.open(check) if is_inference(dict(request.words)) else None
        captures = self._captures.opening(check) if request.model.endswith(".py") else None
        return run_job(request, note, Openers(traces=models, generations=generations, captures=captures))

    @cached_property
    def _generated(self) -> "Generated":
        from gpu_plan.planner.trace.generation.provider import GenerationProvider
        from gpu_plan.tui.engine.infer import Generated
        from gpu_plan.tui.engine.kept.generations import GenerationProviders, KeptGenerations

        kind = KeptGenerations if self._kept_alone else GenerationProvider
        return Generated(GenerationProviders(kind), self._providers.source)

    @cached_property
    def _captures(self) -> "Captures":
        from gpu_plan.tui.engine.kept.captures import Captures, KeptCaptures, WatchedCaptures

        return Captures(KeptCaptures if self._kept_alone else WatchedCaptures)

    @cached_property
    def _scripts(self) -> Replays[Any]:
        return Replays(self._providers, self._captures, self._breakable)
