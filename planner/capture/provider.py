"""Traces of a captured script: what the planner asks of a model, answered by running the script once per question."""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from gpu_plan.planner.cache_dir import cache_dir, entry_name, read_entry, write_entry
from gpu_plan.planner.capture.files import project_files
from gpu_plan.planner.capture.parent import CaptureError, capture
from gpu_plan.planner.capture.request import CapturedFacts, CaptureRequest, Passage
from gpu_plan.planner.capture.workload import natural_regime
from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.model.config_reader import parse_config
from gpu_plan.planner.model.source.resolve import ModelSource, config_digest
from gpu_plan.planner.model.spec import ModelSpec, spec_from
from gpu_plan.planner.plan.codec import decode, dump, load_object
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.entries import assumptions_of
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.trace.static import static_trace
from gpu_plan.planner.trace.storage import CorruptTraceError, load
from gpu_plan.planner.trace.variant import Regime, StepVariant

_MAX_FILES = 400
_READ = (".py", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".txt")


@dataclass(slots=True, kw_only=True)
class CapturedProvider:
    """Stands where gpu_plan.planner.trace.provider.TraceProvider stands for a model."""

    request: CaptureRequest
    device: DeviceKind
    use_cache: bool = True
    note: Callable[[str], None] = lambda _: None
    _facts: CapturedFacts | None = None
    _traces: dict[str, tuple[CapturedFacts, StepTrace]] = field(default_factory=dict)
    configs: dict[str, str] = field(default_factory=dict)
    """Of models that the script asks for by name, as JSON: what one run stops at, the next is told from the start."""
    runs: str = ""
    """What is run, in words, where it is no file of the user's."""
    _digest: str | None = None
    _whole: TraceProvider | None = None

    def facts(self) -> CapturedFacts:
        """What the script does by itself."""
        if self._facts is None:
            self._natural()
        assert self._facts is not None
        return self._facts

    def spec(self) -> ModelSpec:
        """Parameters and identity of the script's model."""
        return spec_from(dict(self.facts().spec))

    def trace(self, variant: StepVariant, micro_batch: int) -> StepTrace:
        """The script's step under `variant`; it holds at `micro_batch` alone."""
        if variant.spread > 1 or variant.split is not None:
            return self._parts().trace(variant, micro_batch)
        request = self.request_of(variant, micro_batch)
        made = self._captured(request)[1]
        if made.samples != (micro_batch,):
            raise CaptureError(
                f"{request.script}: its loader gives {made.samples[0]} samples whatever is asked for: plan with"
                f" --micro-batch {made.samples[0]}, or without it"
            )
        return made

    def request_of(self, variant: StepVariant, micro_batch: int) -> CaptureRequest:
        """The run of the script that answers."""
        facts, request = self.facts(), self.request
        if variant.regime != natural_regime(facts):
            request = replace(request, regime=variant.regime)
        if variant.checkpointing != facts.checkpointing:
            request = replace(request, checkpointing=variant.checkpointing)
        return request if micro_batch == facts.micro_batch else self.of_batch(request, micro_batch)

    def of_batch(self, request: CaptureRequest, micro_batch: int) -> CaptureRequest:
        """The same run with another number of samples."""
        return replace(request, micro_batch=micro_batch)

    def passages(self, variant: StepVariant, micro_batch: int) -> tuple[Passage, ...]:
        """What runs before the script's step in each iteration."""
        return self._captured(self.request_of(variant, micro_batch))[0].passages

    def _parts(self) -> TraceProvider:
        """Traces of one rank's part of the script's model, which are of its configuration: the script is not run in
        parts. UsageError where it is no model of transformers as its class has it."""
        if self._whole is None:
            facts, script = self.facts(), self.request.script
            if not facts.config or facts.models > 1:
                raise UsageError(
                    f"--tp, --cp: {Path(script).name} trains {facts.class_name}, and only one model of transformers,"
                    " without adapters, is computed by several ranks together"
                )
            config = parse_config(facts.config, script)
            if facts.class_name not in (config.get("architectures") or [facts.class_name]):
                config["architectures"] = [facts.class_name]
            source = ModelSource(kind="config", id=facts.class_name, config=config, digest=config_digest(config))
            self._whole = TraceProvider(
                source=source, device=self.device, attention=facts.attention, use_cache=self.use_cache, note=self.note
            )
        return self._whole

    def static_trace(self, regime: Regime) -> StepTrace:
        """A trace without a step, whose parameters stand as `regime` has them."""
        return static_trace(self.spec(), regime)

    def held(self) -> AbstractContextManager[None]:
        """A script is run once for each question."""
        return nullcontext()

    def assumptions(self) -> tuple[list[str], list[str]]:
        """Host reads that were answered, and notes."""
        sites, notes = assumptions_of(trace for _, trace in self._traces.values())
        if self._whole is not None:
            more, said = self._whole.assumptions()
            sites = list(dict.fromkeys([*sites, *more]))
            notes = [
                *notes,
                *said,
                "under --tp, --ep and --cp the step is that of the model's configuration, not the script's own",
            ]
        return sites, [*notes, *(self._facts.notes if self._facts else ())]

    def places(self) -> dict[str, str]:
        """Lines of the user's files at which memory is decided."""
        return {kind: place for facts, _ in self._traces.values() for kind, place in facts.places.items()}

    def _natural(self) -> StepTrace:
        facts, trace = self._captured(self.request)
        self._facts = facts
        return trace

    def _captured(self, request: CaptureRequest) -> tuple[CapturedFacts, StepTrace]:
        key = self._key(request)
        if key in self._traces:
            return self._traces[key]
        folder = cache_dir() / "captures"
        kept = self._kept(folder, key) if self.use_cache else None
        return kept if kept is not None else self._run(request, key, folder)

    def _key(self, request: CaptureRequest) -> str:
        """Name of a run of the script, as its files were when first looked at."""
        if self._digest is None:
            self._digest = files_digest(Path(request.script))
        # What it may take at most, and whether it needs walls, is not what it finds.
        asked = replace(
            request, seconds=0.0, resident_bytes=0, written_bytes=0, processes=0, unwalled=False, rolls_out=True
        )
        return entry_name("capture", self._digest, dump(asked))

    def _run(self, request: CaptureRequest, key: str, folder: Path) -> tuple[CapturedFacts, StepTrace]:
        self.note("tracing")
        walls = ", behind walls" * (not request.unwalled)
        self.note(f"executing {self.runs or request.script} up to its first optimizer step{walls}")
        known = self._known_rollouts(request)
        outcome, content = capture(replace(request, rolls_out=not known), self.note, self.configs)
        assert outcome.facts is not None
        facts = replace(outcome.facts, passages=(*known, *outcome.facts.passages))
        trace = load(content)
        self._traces[key] = (facts, trace)
        if self.use_cache:
            write_entry(folder / f"{key}.json", dump(facts).encode())
            write_entry(folder / f"{key}.npz", content)
        return facts, trace

    def _known_rollouts(self, request: CaptureRequest) -> tuple[Passage, ...]:
        """What generations of this run hold, where another run has told; a user's script may roll out otherwise."""
        return ()

    def _kept(self, folder: Path, key: str) -> tuple[CapturedFacts, StepTrace] | None:
        try:
            facts, content = read_entry(folder / f"{key}.json"), read_entry(folder / f"{key}.npz")
            if facts is None or content is None:
                return None
            self._traces[key] = (decode(CapturedFacts, load_object(facts, key), key), load(content))
            return self._traces[key]
        except (CorruptTraceError, InputError, OSError):
            self.note(f"the cache entry {folder / key} was unreadable and is made again")
            return None


def files_digest(script: Path) -> str:
    """sha256 of the script and of the small text files beside and below it: what its step can depend on."""
    digest = hashlib.sha256()
    beside = (path for path in project_files(script.parent, _READ) if path != script)
    found = [script, *islice(beside, _MAX_FILES - 1)]
    for path in found:
        try:
            digest.update(str(path).encode() + b"\0" + read_bytes(path, 2**20) + b"\0")
        except OSError:
            continue
    return digest.hexdigest()
