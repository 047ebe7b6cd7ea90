"""Runs the main job: from words to a plan document, through the caches (I/O)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.cache_dir import DamagedEntryError, cache_dir, entry_name, read_entry, write_entry
from planner.errors import InputError
from planner.hardware.cluster import Cluster, cluster_document, parse_cluster
from planner.model.source import ModelSource, resolve
from planner.plan import Assumption, PlanDocument, from_json, to_json
from planner.plan_codec import canonical


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for."""

    model: str
    gpus: str
    words: tuple[tuple[str, str], ...]
    """Job options given, by name without dashes."""
    settings: tuple[str, ...]
    pinned: bool
    explain: bool
    trust_remote_code: bool
    revision: str | None
    use_cache: bool
    command: str


Note = Callable[[str], None]


def run_job(request: Request, note: Note) -> PlanDocument:
    """The plan document for a request: kept from before when nothing it rests on has changed."""
    cluster = parse_cluster(request.gpus)
    source = resolve(request.model, trust_remote_code=request.trust_remote_code, revision=request.revision)
    key = _key(request, cluster, source)
    kept = _read(key, request, note)
    if kept is not None:
        return kept
    from planner.job_search import plan_from_scratch

    found = plan_from_scratch(request, cluster, source, note)
    if request.use_cache and source.config is not None:
        write_entry(cache_dir() / "plans" / f"{key}.json", to_json(found).encode())
    return found


def _key(request: Request, cluster: Cluster, source: ModelSource) -> str:
    return entry_name(
        "plan",
        source.digest,
        repr((source.id, source.kind, source.revision, source.notes, source.stored)),
        canonical(cluster_document(cluster)).decode(),
        repr((request.words, request.settings, request.pinned, request.explain)),
    )


def _read(key: str, request: Request, note: Note) -> PlanDocument | None:
    if not request.use_cache:
        return None
    path = cache_dir() / "plans" / f"{key}.json"
    try:
        content = read_entry(path)
        if content is None:
            return None
        document = from_json(content, str(path))
    except (DamagedEntryError, InputError):
        note(f"the cache entry {path} was unreadable and is made again")
        return None
    return _with_command(document, request.command)


def _with_command(document: PlanDocument, command: str) -> PlanDocument:
    from dataclasses import replace

    return document if document.command == command else replace(document, command=command)


def common_assumptions(sites: Sequence[str], notes: Sequence[str]) -> tuple[Assumption, ...]:
    """What every plan of this version rests on, then what this model's trace was told."""
    fixed = (
        Assumption(text="sequences are full: no padding, no packing, no attention mask", basis="assumed"),
        Assumption(text="communication overlaps with computation wherever the code issues it early", basis="assumed"),
    )
    told = tuple(
        Assumption(text=f"host read {site}", basis="traced" if "follows from" in site else "assumed") for site in sites
    )
    return (*fixed, *told, *(Assumption(text=text, basis="traced") for text in notes))
