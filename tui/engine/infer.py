"""One way to generate, evaluated from kept traces: the same values as `plan ... --task infer --pin`, limits apart."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from gpu_plan.planner.cache_dir import versions
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.generation import prepare
from gpu_plan.planner.job.prepared import Openers
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.options.cluster import find_cluster
from gpu_plan.planner.options.generation import InferGiven, read_given
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.plan.document import PlanDocument, TensorLine
from gpu_plan.planner.plan.drawn.lanes import Lane
from gpu_plan.planner.plan.inference import DevicePlacement
from gpu_plan.planner.search.document import document, tensor_lines
from gpu_plan.planner.search.generation.judgement import GenerationJudgement
from gpu_plan.planner.search.generation.task import GenerationTask
from gpu_plan.planner.search.search import Found, search
from gpu_plan.planner.trace.events import IntArray
from gpu_plan.tui.engine.columns import COUNT, columns
from gpu_plan.tui.engine.kept.generations import GenerationProviders, KeptGenerations, WatchedGenerations
from gpu_plan.tui.engine.messages import Columns, GenerationParcel, Picture, RankClass, Wanted

_LEAST_SHARE = 6
"""A phase has at least one in so many of the columns, however few its events are."""
_OTHERS = 2
"""Classes of further devices that are drawn."""
Resolve = Callable[[Request], ModelSource]


class Generated:
    """Evaluates generations."""

    def __init__(self, providers: GenerationProviders, source: Resolve) -> None:
        self._providers, self._source = providers, source

    def pictures(self, request: Request, wanted: Wanted = "each") -> Iterator[Picture]:
        """The exact picture, whatever is wanted. Raises PlanError as the main job, or UntracedError."""
        del wanted
        task, _ = self._task(request, lambda _: None, lambda: None)
        found = search(task)
        judgement = _one(found)
        yield Picture(
            document=self._document(request, task, found),
            exact=True,
            columns=_columns(judgement),
            ranks=_ranks(judgement),
        )

    def prepared(self, request: Request) -> Iterator[None]:
        """Nothing takes long before its picture."""
        return iter(())

    def tensors(self, request: Request) -> tuple[TensorLine, ...]:
        """All tensors at the peak of the picture. Raises as `pictures`."""
        task, _ = self._task(request, lambda _: None, lambda: None)
        judgement = _one(search(task))
        return tensor_lines(judgement, blocks=judgement.blocks)

    def lanes(self, request: Request) -> tuple[Lane, ...]:
        """None: a generation has no step."""
        return ()

    def parcel(self, request: Request, note: Note, check: Callable[[], None]) -> GenerationParcel:
        """The traces that a request's picture replays. Raises as `pictures`, and whatever `check` does."""
        task, provider = self._task(request, note, check)
        search(task)
        return provider.parcel(request)

    def take(self, parcel: GenerationParcel) -> None:
        """Keeps traces that another process made."""
        request = parcel.request
        given = read_given(dict(request.words), request.settings)
        cluster = find_cluster(request.gpus, request.settings)
        provider = self._providers.open(request, cluster, self._source(request), given, lambda _: None)
        if isinstance(provider, KeptGenerations):
            provider.take(parcel)

    def open(
        self, check: Callable[[], None]
    ) -> Callable[[Request, Cluster, ModelSource, InferGiven, Note], WatchedGenerations]:
        """What `gpu_plan.planner.job.run.run_job` takes: kept providers, each watched for one question."""

        def opened(
            request: Request, cluster: Cluster, source: ModelSource, given: InferGiven, note: Note
        ) -> WatchedGenerations:
            return WatchedGenerations(self._providers.open(request, cluster, source, given, note), check)

        return opened

    def _task(
        self, request: Request, note: Note, check: Callable[[], None]
    ) -> tuple[GenerationTask, WatchedGenerations]:
        """The task without its limits, which no picture shows, and what its traces come from."""
        cluster = find_cluster(request.gpus, request.settings)
        job = prepare(request, cluster, self._source(request), note, Openers(generations=self.open(check)))
        assert isinstance(job.task, GenerationTask)
        task = replace(job.task, bounded=False)
        provider = task.evaluator.provider
        assert isinstance(provider, WatchedGenerations)
        return task, provider

    def _document(self, request: Request, task: GenerationTask, found: Found[GenerationJudgement]) -> PlanDocument:
        return document(
            found,
            task=task,
            source=self._source(request),
            spec=task.evaluator.provider.spec(),
            command=request.command,
            versions=versions(),
        )


def _one(found: Found[GenerationJudgement]) -> GenerationJudgement:
    return found.plans[0] if found.plans else found.rejected[0].judgement


def _columns(judgement: GenerationJudgement) -> Columns | None:
    stream, blocks = judgement.stream, judgement.blocks
    if blocks is None:
        blocks = stream.sizes(1)
    return columns(stream, blocks, edges=edges(stream, COUNT))


def edges(stream: RankStream, count: int) -> IntArray:
    """Where columns begin in the whole run, and its end: phases by their events, none of them next to nothing."""
    total = len(stream.event_segment)
    behind = [
        int(np.searchsorted(stream.event_segment, segment, side="right")) for segment in range(len(stream.phases))
    ]
    ends = [end for at, end in enumerate(behind) if at + 1 == len(behind) or stream.phases[at + 1] != stream.phases[at]]
    starts = [0, *ends[:-1]]
    spans = [(start, end) for start, end in zip(starts, ends, strict=True) if end > start]
    wanted = [max(count // _LEAST_SHARE, round(count * (end - start) / max(1, total))) for start, end in spans]
    pieces = [
        np.linspace(start, end, min(columns_of, end - start) + 1).astype(np.int64)
        for (start, end), columns_of in zip(spans, wanted, strict=True)
    ]
    return np.unique(np.concatenate(pieces)) if pieces else np.zeros(1, dtype=np.int64)


def _ranks(judgement: GenerationJudgement) -> tuple[RankClass, ...]:
    """The worst device first, then others of a map or of stages that hold something else."""
    placed = () if judgement.placement is None else judgement.placement.devices
    devices = [device for device in placed if device.peak_bytes is not None]
    peak = judgement.profile.peak_allocated_bytes
    groups: dict[tuple[int, int, int], list[str]] = {}
    for device in devices:
        if device.peak_bytes != peak:
            groups.setdefault(_alike(device), []).append(device.device)
    worst = RankClass(
        name="worst device" if groups else "every device",
        at_peak=tuple((str(category), size) for category, size in judgement.profile.at_peak.items()),
        peak_allocated_bytes=peak,
    )
    others = sorted(groups.items(), key=lambda group: -group[0][2])[:_OTHERS]
    return (worst, *(_class(key, names) for key, names in others))


def _alike(device: DevicePlacement) -> tuple[int, int, int]:
    return device.weight_bytes, device.kv_cache_bytes, device.peak_bytes or 0


def _class(key: tuple[int, int, int], names: list[str]) -> RankClass:
    weights, cache, peak = key
    parts = (("parameters", weights), ("kv_cache", cache), ("other", max(0, peak - weights - cache)))
    name = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    return RankClass(name=name, at_peak=parts, peak_allocated_bytes=peak)
