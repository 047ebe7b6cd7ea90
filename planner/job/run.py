"""Runs the main job: from words to a plan document, through the caches (I/O)."""

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_plan.planner.cache_dir import DamagedEntryError, cache_dir, entry_name, installed, read_entry, write_entry
from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.hardware.cluster import Cluster, cluster_document
from gpu_plan.planner.hardware.disk import free_bytes
from gpu_plan.planner.model.source.resolve import ModelSource, resolve
from gpu_plan.planner.options.cluster import find_cluster
from gpu_plan.planner.options.request import Answer, Note, Request
from gpu_plan.planner.options.task import is_inference
from gpu_plan.planner.options.wishes.read import read_wishes, settled
from gpu_plan.planner.plan.codec import canonical, dump
from gpu_plan.planner.plan.document import PlanDocument, from_json
from gpu_plan.planner.speed.calibration.store import kept_for
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.workload.training import NVME_PATH

if TYPE_CHECKING:
    from gpu_plan.planner.job.prepared import Openers
    from gpu_plan.planner.search.underway.watch import Watcher

_MIRRORED = ("deepspeed", "bitsandbytes", "torchao")
"""Mirrored, though no trace is made with them: a plan says where another version is installed."""


_SELDOM = 1_000_000
"""Objects after which garbage is collected; 700 in Python."""


def run_job(request: Request, note: Note, openers: "Openers | None" = None, watch: "Watcher | None" = None) -> Answer:
    """The answer to a request: kept from before when nothing it rests on has changed.

    `openers` give traces in place of new providers; `watch` is told what is done where something is searched.
    """
    if is_inference(dict(request.words)) and request.script is not None:
        raise UsageError("--task infer plans a model, not a training script: leave the script out")
    cluster = settled(
        _with_disk(find_cluster(request.gpus, request.settings), request), read_wishes(dict(request.words))
    )
    if request.plot and cluster.gpu.is_cpu:
        raise UsageError("--plot draws CUDA's caching allocator, which a CPU does not have: name GPUs in --gpus")
    if request.snapshot and cluster.gpu.is_cpu:
        raise UsageError("--snapshot shows CUDA's caching allocator, which a CPU does not have: name GPUs in --gpus")
    source = resolve(
        request.model, trust_remote_code=request.trust_remote_code, revision=request.revision, diffused=True
    )
    if request.script is not None or "recipe" in dict(request.words) or source.kind == "job":
        # What a recipe runs is TRL's, of whatever version. A script's files and the files that they read are what it
        # is compared by. The search is run, traces are kept.
        return _searched(request, cluster, source, note, openers, watch)
    # Where nothing is kept, nothing is asked for: words that are refused leave no cache behind.
    key = _key(request, cluster, source) if (cache_dir() / "plans").is_dir() else None
    kept = None if key is None else _read(key, request, note)
    if kept is not None:
        return Answer(document=kept)
    found = _searched(request, cluster, source, note, openers, watch)
    if request.use_cache and source.config is not None:
        key = key or _key(request, cluster, source)
        write_entry(cache_dir() / "plans" / f"{key}.json", dump(found.document, indent=None).encode())
    return found


def _with_disk(cluster: Cluster, request: Request) -> Cluster:
    """This machine with what is free where swap files are to lie, where any are."""
    swaps = dict(request.words).get("offload") == Offload.NVME
    if not swaps or request.gpus.strip().lower() != "auto" or cluster.nvme_bytes is not None:
        return cluster
    settings = dict(text.split("=", 1) for text in request.settings if "=" in text)
    return replace(cluster, nvme_bytes=free_bytes(Path(settings.get("zero.nvme_path", NVME_PATH))))


def _searched(
    request: Request,
    cluster: Cluster,
    source: ModelSource,
    note: Note,
    openers: "Openers | None",
    watch: "Watcher | None",
) -> Answer:
    with seldom_collected():
        from gpu_plan.planner.job.answer import plan_from_scratch
        from gpu_plan.planner.job.prepared import Openers
        from gpu_plan.planner.search.underway.watch import Watcher

        return plan_from_scratch(request, cluster, source, note, openers or Openers(), watch or Watcher())


@contextlib.contextmanager
def seldom_collected() -> Iterator[None]:
    """Collection of garbage walks everything that imports and traces made: inside it comes seldom.

    Behind it all that is there counts as old, unwalked: most ends with the command's process. What one search leaves
    goes before the next of the same process. Where somebody has frozen objects, theirs are left alone.
    """
    if _left:
        gc.collect()
        _left.clear()
    usual = gc.get_threshold()
    gc.set_threshold(max(usual[0], _SELDOM), *usual[1:])
    try:
        yield
    finally:
        _left.append(True)
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()  # into the oldest generation
        gc.set_threshold(*usual)


_left: list[bool] = []
"""Whether a search of this process was not cleared up after."""


def _key(request: Request, cluster: Cluster, source: ModelSource) -> str:
    return entry_name(
        "plan",
        source.digest,
        repr((source.id, source.kind, source.revision, source.notes, source.stored)),
        canonical(cluster_document(cluster)).decode(),
        repr(installed(_MIRRORED)),
        # The document leaves out what a user may change about a GPU of theirs, such as its context.
        repr((cluster.gpu, cluster.price)),
        repr((request.words, request.settings, request.pinned, request.explain and request.explained)),
        repr((request.suggest, request.alternatives, request.advise)),
        repr(kept_for(cluster).record),
    )


def _read(key: str, request: Request, note: Note) -> PlanDocument | None:
    if not request.use_cache or request.snapshot or request.plot or request.timeline or request.schedule:
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
    return document if document.command == command else replace(document, command=command)
