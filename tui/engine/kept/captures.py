"""What a training script was seen to do, kept between questions, with what each question may do about a missing run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gpu_plan.planner.capture.job import capture_request
from gpu_plan.planner.capture.provider import CapturedProvider
from gpu_plan.planner.capture.request import CapturedFacts, CaptureRequest
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.options.cluster import find_cluster
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.plain.recent import Recent
from gpu_plan.planner.plan.codec import decode, load_object
from gpu_plan.planner.plan.codec import dump as as_json
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.entries import assumptions_of
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.storage import dump, load
from gpu_plan.tui.engine.kept.providers import UntracedError
from gpu_plan.tui.engine.messages import CaptureParcel

_RUNS = 32
"""Runs of one script that are kept: each micro batch and each type is one of its own."""


@dataclass(slots=True, kw_only=True)
class WatchedCaptures(CapturedProvider):
    """Asks before every run of the script whether the answer is still wanted, and knows what a question used."""

    check: Callable[[], None] = lambda: None
    used: dict[str, tuple[CapturedFacts, StepTrace]] = field(default_factory=dict)

    def _captured(self, request: CaptureRequest) -> tuple[CapturedFacts, StepTrace]:
        self.check()
        # Named in full: a dataclass with slots is another class than the one that super() would look for.
        found = CapturedProvider._captured(self, request)
        self.used[self._key(request)] = found
        return found

    def assumptions(self) -> tuple[list[str], list[str]]:
        """Of the runs that this question used."""
        sites, notes = assumptions_of(trace for _, trace in self.used.values())
        return sites, [*notes, *self.facts().notes]

    def parcel(self, request: Request) -> CaptureParcel:
        """All that the question used."""
        runs = tuple((key, as_json(facts).encode(), dump(trace)) for key, (facts, trace) in self.used.items())
        return CaptureParcel(request=request, captures=runs)

    def take(self, parcel: CaptureParcel) -> None:
        """Keeps runs that another process made."""
        for key, facts, content in parcel.captures:
            self._traces[key] = (decode(CapturedFacts, load_object(facts, key), key), load(content))


@dataclass(slots=True, kw_only=True)
class KeptCaptures(WatchedCaptures):
    """Runs of the cache alone: what is missing is said, the script is not run."""

    def _run(self, request: CaptureRequest, key: str, folder: Path) -> tuple[CapturedFacts, StepTrace]:
        raise UntracedError


class Captures:
    """Captures by script, arguments and devices; the least recently used is forgotten."""

    def __init__(self, kind: type[WatchedCaptures]) -> None:
        self._kind = kind
        self._kept: Recent[WatchedCaptures] = Recent()

    def open(
        self, request: Request, cluster: Cluster, script: Path, note: Note, check: Callable[[], None] = lambda: None
    ) -> WatchedCaptures:
        """As `gpu_plan.planner.capture.job.provider_of`, kept, and watched for one question."""
        asked = capture_request(request, cluster, script)
        key = (as_json(asked), request.use_cache)
        kind = device_kind(cluster.gpu)
        found = self._kept.get(key, lambda: self._kind(request=asked, device=kind, use_cache=request.use_cache))
        found.note, found.check, found.used = note, check, {}
        while len(found._traces) > _RUNS:
            found._traces.pop(next(iter(found._traces)))
        return found

    def opening(self, check: Callable[[], None]) -> Callable[[Request, Cluster, Path, Note], WatchedCaptures]:
        """What `gpu_plan.planner.job.run.run_job` takes."""

        def opened(request: Request, cluster: Cluster, script: Path, note: Note) -> WatchedCaptures:
            return self.open(request, cluster, script, note, check)

        return opened

    def parcel(self, request: Request) -> CaptureParcel:
        """All that the last question used."""
        return self._kept.newest.parcel(request)

    def take(self, parcel: CaptureParcel, source: ModelSource) -> None:
        """Keeps runs that another process made."""
        assert source.path is not None
        self.open(parcel.request, find_cluster(parcel.request.gpus), source.path, lambda _: None).take(parcel)
