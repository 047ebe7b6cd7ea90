"""Books of what searches ask for beyond the others: `python -m tests.support.searched_traces [MODEL ...]`.

Of the models of `shipped_traces.MODELS` every variant is traced, at every micro batch up to 64. A mixture of many
experts takes seconds for each, and so do shares of long samples and of layers: what is shipped of them is what plans on
their usual clusters ask for, traces and refusals, for themselves and for what else could be done, and no more. `make
traces` makes them behind the others.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.job.run import run_job
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.request import Request
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.trace.shipped.book import read_book, write_book
from gpu_plan.planner.trace.shipped.lookup import SEARCHED, find_shipped, refusal_key, shelf_key
from gpu_plan.planner.trace.shipped.source import COMPARED, UNDER_ADAPTERS
from gpu_plan.planner.trace.storage import written
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.whole_file import replace_file
from tests.support.shipped_traces import LORA, book_path, digests, made_with, passed_through, provider_of

CLUSTERS: dict[str, Sequence[str]] = {
    "deepseek-ai/DeepSeek-V3": ("4x8xH200", "16x8xH200", "32x8xH100"),
    "moonshotai/Kimi-K2.5": ("16x8xH200", "32x8xH200", "64x8xH100"),
    "Qwen/Qwen3-235B-A22B": ("4x8xH200", "8x8xH100", "2x8xH200"),
    "openai/gpt-oss-120b": ("8xH100", "2x8xH100", "8xH200"),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": ("2x8xH100", "4x8xH200"),
    "mistralai/Mixtral-8x7B-v0.1": ("8xH100", "8xH200", "2x8xH100"),
    "meta-llama/Llama-3.1-8B": (
        "8xH100 --seq-len 32768",
        "8xH100 --seq-len 131072",
        "2x8xH100 --seq-len 32768",
        "2x8xH100 --seq-len 131072",
        "8xH200 --seq-len 131072",
    ),
    "meta-llama/Llama-3.1-70B": ("8xH100", "2x8xH100", "16x8xH100", "8x8xH100 --seq-len 32768"),
    "Qwen/Qwen3-14B": ("8xH100", "2x8xH100"),
    "Qwen/Qwen3-8B": ("8xH100 --seq-len 32768",),
}
"""Models, and clusters that hold them or nearly do; with options behind them where they are not the default's."""


@dataclass
class Asked:
    """What was asked for under one adapter, or none."""

    adapter: Adapter | None
    spec: ModelSpec | None = None
    traces: dict[str, bytes] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)


@contextmanager
def asking(known: dict[str, Asked]) -> Iterator[None]:
    """Collects into `known`, by adapter, what providers give meanwhile; nothing that is shipped is looked at."""
    trace, spec = TraceProvider.trace, TraceProvider.spec

    def of(provider: TraceProvider) -> Asked:
        return known.setdefault(provider._adapter_key, Asked(provider.adapter))

    def told(provider: TraceProvider) -> ModelSpec:
        found = spec(provider)
        of(provider).spec = of(provider).spec or found
        return found

    def given(provider: TraceProvider, variant: StepVariant, micro_batch: int) -> StepTrace:
        asked, others = of(provider), find_shipped(provider.source.digest, print, adapter=provider._adapter_key)
        refusal = refusal_key(provider.device, provider.attention, variant, micro_batch, alike=provider.alike)
        try:
            made = trace(provider, variant, micro_batch)
        except CannotSplitError as problem:
            if refusal is not None:
                asked.refusals[refusal] = str(problem)
            raise
        key = shelf_key(provider.device, provider.attention, variant, made.samples, alike=provider.alike)
        told = others and others.told(provider.device, provider.attention, variant, made.samples)
        if key is not None and key not in asked.traces and told is None:
            asked.traces[key] = written(made)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TraceProvider, "_find_shipped_traces", lambda provider: None)
        patch.setattr(TraceProvider, "spec", told)
        patch.setattr(TraceProvider, "trace", given)
        yield


def searched(model: str, clusters: Sequence[str], files: set[str] | None = None) -> dict[str, Asked]:
    """What its default plans on these clusters ask for, by adapter; the files of other projects that the first of them
    passes through are added to `files`."""
    known: dict[str, Asked] = {}
    with asking(known):
        for number, gpus in enumerate(clusters):
            cluster, *options = gpus.replace("--", "").split()
            words = tuple(zip(options[::2], options[1::2], strict=True))
            request = Request(
                model=model, gpus=cluster, words=words, settings=(), pinned=False, explain=False,
                trust_remote_code=False, revision=None, use_cache=True, command="", advise=True,
            )  # fmt: skip
            watched = passed_through(files, UNDER_ADAPTERS) if files is not None and not number else nullcontext()
            try:
                with watched:
                    run_job(request, lambda text: print(text, file=sys.stderr))
            except PlanError as problem:
                print(f"{model} {gpus}: {problem}", flush=True)
    return known


def make_books(model: str, clusters: Sequence[str]) -> dict[Path, bytes]:
    """Its books of what the others do not have: as it is, and trained through each adapter that was looked at."""
    source, device = resolve(model), device_kind(parse_cluster("1xH100").gpu)
    for adapter in (None, LORA):
        provider_of(source, device, adapter).spec()  # whatever is imported is imported now, and not counted
    files: set[str] = set()
    return dict(_book(model, asked, files) for asked in searched(model, clusters, files).values() if asked.spec)


def _book(model: str, asked: Asked, files: set[str]) -> tuple[Path, bytes]:
    assert asked.spec is not None
    mine = {file for file in files if asked.adapter is not None or file.partition("/")[0] in COMPARED}
    path = book_path(model, asked.adapter)
    known = read_book(path.read_bytes()).places if path.exists() else {}
    fresh = {key: trace for key, trace in asked.traces.items() if key not in known}
    spec = replace(asked.spec, id=model)
    book = write_book(model, made_with(asked.adapter), digests(mine), spec, fresh, asked.refusals)
    return SEARCHED / path.name, book


def main(models: list[str]) -> int:
    """Writes the books of `models`, of all without any; of those alone that are searched for it."""
    for model in CLUSTERS.keys() & models if models else CLUSTERS:
        for path, content in make_books(model, CLUSTERS[model]).items():
            replace_file(path, content)
            book = read_book(content)
            print(
                f"{path.name}: {len(book.places)} traces, {len(content):,} bytes, {len(book.files)} files", flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
