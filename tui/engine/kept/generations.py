"""Generations that stay in memory between questions, with what each question may do about a missing one."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NoReturn

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.quantization import Scheme
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.generation import InferGiven, quantisation, weight_type
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.plain.recent import Recent
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.entries import assumptions_of
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.generation.provider import GenerationProvider
from gpu_plan.planner.trace.generation.variant import GenerationVariant
from gpu_plan.planner.trace.storage import dump, load
from gpu_plan.tui.engine.kept.providers import UntracedError
from gpu_plan.tui.engine.messages import GenerationParcel

_TRACES = 48
"""Generations of one model that are kept: each context and batch is one of its own."""


class KeptGenerations(GenerationProvider):
    """Generations of the cache alone: what is missing is said, not made."""

    __slots__ = ()

    def take(self, parcel: GenerationParcel) -> None:
        """Keeps what another process traced."""
        self._spec, self._merged = parcel.spec, parcel.merged
        for key, content in parcel.traces:
            self._traces[key] = load(content)

    def _open_session(self) -> NoReturn:
        raise UntracedError


@dataclass(slots=True)
class WatchedGenerations:
    """A provider for one question: asks before every trace whether the answer is still wanted, knows what it used."""

    inner: GenerationProvider
    check: Callable[[], None]
    used: dict[str, StepTrace] = field(default_factory=dict)

    @property
    def scheme(self) -> Scheme | None:
        return self.inner.scheme

    def spec(self) -> ModelSpec:
        self.check()
        return self.inner.spec()

    def merged(self) -> frozenset[str]:
        return self.inner.merged()

    def copies(self) -> Mapping[str, str]:
        return self.inner.copies()

    def trace(self, variant: GenerationVariant) -> StepTrace:
        self.check()
        if variant.key() not in self.inner._traces:
            self.inner.note(_words(variant))
        found = self.inner.trace(variant)
        self.used[variant.key()] = found
        return found

    def held(self) -> AbstractContextManager[None]:
        return self.inner.held()

    def assumptions(self) -> tuple[list[str], list[str]]:
        """Of the traces that this question used."""
        return assumptions_of(self.used.values())

    def parcel(self, request: Request) -> GenerationParcel:
        """All that the question used."""
        traces = tuple((key, dump(trace)) for key, trace in self.used.items())
        return GenerationParcel(request=request, spec=self.inner.spec(), merged=self.inner.merged(), traces=traces)


class GenerationProviders:
    """Providers by model, device, attention, type and quantisation; the least recently used is forgotten."""

    def __init__(self, kind: type[GenerationProvider]) -> None:
        self._kind = kind
        self._kept: Recent[GenerationProvider] = Recent()

    def open(
        self, request: Request, cluster: Cluster, source: ModelSource, given: InferGiven, note: Note
    ) -> GenerationProvider:
        """As `gpu_plan.planner.job.generation.generation_provider`, and kept."""
        device, attention = device_kind(cluster.gpu), given.attention or "sdpa"
        dtype, scheme = weight_type(given.precision, source)[0].dtype, quantisation(given, source)
        quantised = "" if scheme is None else scheme.key()
        key = (source.digest, source.id, device, str(attention), dtype, quantised, request.use_cache)
        found = self._kept.get(
            key,
            lambda: self._kind(
                source=source, device=device, attention=attention, dtype=dtype, scheme=scheme,
                use_cache=request.use_cache, note=note,
            ),
        )  # fmt: skip
        found.note = note
        while len(found._traces) > _TRACES:
            found._traces.pop(next(iter(found._traces)))
        return found


def _words(variant: GenerationVariant) -> str:
    """`tracing 4,096 tokens, batch 1, stage 2 of 4`."""
    pieces = [f"tracing {variant.prompt + variant.steps - 1:,} tokens", f"batch {variant.batch}"]
    if variant.tensor_parallel > 1:
        pieces.append(f"tensor parallel {variant.tensor_parallel}")
    if variant.pipeline_parallel > 1:
        pieces.append(f"stage {variant.stage + 1} of {variant.pipeline_parallel}")
    return ", ".join(pieces)
