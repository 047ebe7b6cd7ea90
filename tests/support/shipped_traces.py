"""Makes the traces that are shipped: `python -m tests.support.shipped_traces [MODEL ...]`, `make traces` for all.

With `--lengths` before them traces over sequence lengths alone, added to the books that there are.
With `--lora` before them the books of models that are trained through LoRA's default adapters.
With `--facts` before them what the other models of the catalog are, their parameters above all, without traces.

For each model the variants that the default search asks for, on a device of every choice of attention kernels, at the
micro batches up to 64; and the files of other projects that tracing passed through. Needs the pinned versions.
"""

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_plan.planner.cache_dir import versions
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.job.prepared import Openers
from gpu_plan.planner.job.training import prepare
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.catalog_index import load_index
from gpu_plan.planner.model.source.resolve import ModelSource, resolve
from gpu_plan.planner.options.request import Request
from gpu_plan.planner.trace.device import DeviceKind, device_kind
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.trace.shipped.book import read_book, write_book
from gpu_plan.planner.trace.shipped.lookup import ADAPTED, ALONE, BOOKS, SEVERAL, book_name, lengths_key, trace_key
from gpu_plan.planner.trace.shipped.source import COMPARED, UNDER_ADAPTERS, digest_of, installed_folders
from gpu_plan.planner.trace.sizes.errors import NotLinearError
from gpu_plan.planner.trace.sizes.lengths import longest
from gpu_plan.planner.trace.storage import written
from gpu_plan.planner.trace.storage.over_lengths import written_lengths
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.whole_file import replace_file
from gpu_plan.planner.workload.adapters import Peft

if TYPE_CHECKING:
    from pathlib import Path

MODELS = (
    "meta-llama/Llama-3.1-8B",
    "Qwen/Qwen2.5-7B",
    "meta-llama/Llama-3.2-1B",
    "Qwen/Qwen3-8B",
    "meta-llama/Llama-3.1-70B",
    "mistralai/Mistral-7B-v0.1",
    "Qwen/Qwen2.5-0.5B",
    "meta-llama/Llama-3.2-3B",
    "Qwen/Qwen3-32B",
    "mistralai/Mixtral-8x7B-v0.1",
    "openai/gpt-oss-20b",
    "google/gemma-2-9b",
)
"""Most wanted first."""
AT_ONE_LENGTH = (
    "meta-llama/Meta-Llama-3-8B",
    "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen3-4B",
    "Qwen/Qwen3-235B-A22B",
    "openai/gpt-oss-120b",
    "Qwen/Qwen2.5-14B",
    "Qwen/Qwen2.5-32B",
    "Qwen/Qwen2.5-72B",
    "meta-llama/Llama-3.3-70B-Instruct",
    "meta-llama/Llama-3.1-405B",
    "mistralai/Mistral-7B-Instruct-v0.3",
    "Qwen/Qwen3-0.6B",
    "Qwen/Qwen3-1.7B",
    "Qwen/Qwen2.5-1.5B",
    "Qwen/Qwen2.5-3B",
    "Qwen/Qwen2-7B-Instruct",
    "meta-llama/Llama-2-7b-hf",
    "meta-llama/Llama-2-13b-hf",
    "meta-llama/Llama-2-70b-hf",
    "google/gemma-2-2b",
    "google/gemma-2-27b",
    "google/gemma-3-1b-it",
    "mistralai/Mistral-Nemo-Instruct-2407",
    "mistralai/Mistral-Small-24B-Base-2501",
    "mistralai/Mixtral-8x22B-v0.1",
    "microsoft/phi-4",
    "microsoft/Phi-4-mini-instruct",
    "microsoft/Phi-3-mini-4k-instruct",
    "microsoft/phi-2",
    "HuggingFaceTB/SmolLM2-135M",
    "HuggingFaceTB/SmolLM2-360M",
    "HuggingFaceTB/SmolLM3-3B",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "allenai/OLMo-2-1124-7B",
    "allenai/OLMoE-1B-7B-0924-SFT",
    "openai-community/gpt2",
    "openai-community/gpt2-xl",
    "EleutherAI/pythia-1.4b",
    "tiiuae/falcon-7b",
    "deepseek-ai/DeepSeek-V2-Lite",
    "zai-org/GLM-4.7",
    "google-bert/bert-base-uncased",
    "answerdotai/ModernBERT-base",
    "google-t5/t5-small",
    "google/vit-base-patch16-224",
    "openai/whisper-small",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "google/gemma-3-4b-it",
    "deepseek-ai/DeepSeek-V3",
    "Qwen/Qwen3-14B",
    "ibm-granite/granite-3.2-8b-instruct",
)
"""Models whose traces are shipped at the default length alone."""
UNDER_LORA = ("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-8B")
"""Models whose traces are shipped under `--peft lora` too."""
LORA = Adapter(peft=Peft("lora"))
"""Of the default rank and targets."""
GPUS = ("H100", "A100-80GB", "L40S")
"""One of each choice of kernels."""
SMALL = {"T4": 10**10}
"""Devices that models of up to so many parameters are traced for as well."""
ALIKE = {"L40S": "A100-80GB"}
"""Devices that choose alike for all but large heads: where a single sample's step is equal, so are the others."""
SPREADS = ("1x", "2x8x")
LENGTHS = (128, 1000, 2048, 3000, 4096, 6144, 8192, 12290, 16384, 32768, 65536, 131072)
"""At which traces over lengths are recorded, as far as a model's positions go; odd ones among them."""
MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
OVER_LENGTHS = ("H100",)
"""Devices whose traces are recorded over lengths."""


@contextmanager
def passed_through(found: set[str], projects: Iterable[str] = COMPARED) -> Iterator[None]:
    """Collects the Python files whose functions run, of the compared projects, as `project/path.py`."""
    folders = {str(folder): project for project, folder in installed_folders(projects).items()}
    known: dict[str, None] = {}

    def watch(frame: object, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":  # type: ignore[attr-defined]
            known.setdefault(frame.f_code.co_filename)  # type: ignore[attr-defined]

    sys.setprofile(watch)
    threading.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        for file in known:
            for folder, project in folders.items():
                if file.startswith(f"{folder}/"):
                    found.add(f"{project}/{file[len(folder) + 1 :]}")


def variants(provider: TraceProvider, gpu: str) -> dict[str, StepVariant]:
    """What the default search asks for of a rank that computes whole samples with the whole model."""
    found: dict[str, StepVariant] = {}
    for spread in SPREADS:
        cluster = parse_cluster(spread + gpu)
        request = Request(
            model=provider.source.id,
            gpus=f"{spread}{gpu}",
            words=() if provider.adapter is None else (("peft", str(provider.adapter.peft)),),
            settings=(),
            pinned=False,
            explain=False,
            trust_remote_code=False,
            revision=None,
            use_cache=False,
            command="",
        )
        opener = Openers(traces=lambda *_: provider)
        task = prepare(request, cluster, provider.source, lambda _: None, opener).task
        for family in task.families():
            variant = task.evaluator.variant(family)
            if variant.spread == 1 and variant.split is None:
                found[variant.key()] = variant
    return found


def provider_of(source: ModelSource, device: DeviceKind, adapter: Adapter | None = None) -> TraceProvider:
    """Traces of a model, nothing of it kept or shipped."""
    return TraceProvider(
        source=source,
        device=device,
        attention="sdpa",
        adapter=adapter,
        use_cache=False,
        shipped=False,
        wide=True,
    )


def make_facts(model: str) -> bytes:
    """One model's book without traces."""
    provider = provider_of(resolve(model), device_kind(parse_cluster("1xH100").gpu))
    files: set[str] = set()
    if (kind := _class_of(provider.source)) not in _IMPORTED:
        provider_of(provider.source, provider.device).spec()  # imports, which are not counted
        _IMPORTED.add(kind)
    with passed_through(files):
        spec = provider.spec()
    return write_book(model, made_with(), digests(files), spec, {})


_IMPORTED: set[str] = set()
"""Classes that were built in this process."""


def _class_of(source: ModelSource) -> str:
    config = source.config or {}
    return f"{config.get('model_type')} {config.get('architectures')} {config.get('quantization_config')}"


def digests(files: set[str]) -> dict[str, str]:
    """Of files, by their names, as far as they can be read."""
    folders = installed_folders(UNDER_ADAPTERS)
    found = {file: digest_of(folders[file.partition("/")[0]] / file.partition("/")[2]) for file in sorted(files)}
    return {file: digest for file, digest in found.items() if digest is not None}


def made_with(adapter: Adapter | None = None) -> dict[str, str]:
    """Versions of the projects that traces stand for."""
    return {project: versions()[project] for project in _compared(adapter)}


def _compared(adapter: Adapter | None) -> tuple[str, ...]:
    return COMPARED if adapter is None else UNDER_ADAPTERS


def make_book(model: str, *, lengths: bool = True, adapter: Adapter | None = None) -> bytes:
    """One model's book, as it is or trained through an adapter; without `lengths` that of the default one alone."""
    source = resolve(model)
    traces: dict[str, bytes] = {}
    files: set[str] = set()
    spec = None
    for gpu in (*GPUS, *SMALL):
        if spec is not None and spec.num_parameters > SMALL.get(gpu, spec.num_parameters):
            continue
        device = device_kind(parse_cluster(f"1x{gpu}").gpu)
        provider = provider_of(source, device, adapter)
        if spec is None:
            provider_of(source, device, adapter).spec()  # whatever is imported is imported now, and not counted
            with passed_through(files, _compared(adapter)):
                spec = provider.spec()
            asked = variants(provider, gpu)
            with passed_through(files, _compared(adapter)):
                for variant in asked.values():
                    provider.trace(variant, 1)
        else:
            asked = variants(provider, gpu)
        for variant in asked.values():
            for micro_batch in MICRO_BATCHES:
                try:
                    made = provider.trace(variant, micro_batch)
                except CannotSplitError:  # no attention kernel of that device for a share of the tokens
                    break
                key = trace_key(device, "sdpa", variant, made.samples)
                if key is not None and key not in traces:
                    traces[key] = written(made)
                if micro_batch == 1 and _same_as(ALIKE.get(gpu), variant, traces, key):
                    other = f"{_kernels(ALIKE[gpu])} sdpa {variant.key()} "
                    mine = f"{_kernels(gpu)} sdpa {variant.key()} "
                    traces |= {
                        mine + name[len(other) :]: trace for name, trace in traces.items() if name.startswith(other)
                    }
                    break
    assert spec is not None
    book = write_book(model, made_with(adapter), digests(files), spec, traces)
    return with_lengths(book) if lengths and adapter is None else book


def over_lengths(source: ModelSource, device: DeviceKind, asked: Iterable[StepVariant]) -> dict[str, bytes]:
    """Traces over sequence lengths, by their keys: one for each span whose polynomials are one."""
    from gpu_plan.planner.trace.session import TracingSession

    session, found = TracingSession(source, device, "sdpa"), dict[str, bytes]()
    positions = (source.config or {}).get("max_position_embeddings") or 0
    for variant in asked:
        for samples in (ALONE, SEVERAL):
            lines = {}
            for length in (length for length in LENGTHS if length <= positions):
                with suppress(NotLinearError):
                    lines[length] = session.line(replace(variant, seq_len=length), samples)
            for number, lengths in enumerate(longest(lines)):
                key = lengths_key(device, "sdpa", variant, samples, number)
                if key is not None:
                    found[key] = written_lengths(lengths)
    return found


def with_lengths(content: bytes) -> bytes:
    """A book with traces over lengths added to what it has."""
    book, found = read_book(content), dict[str, bytes]()
    source = resolve(book.model)
    kept = {key: book.stored(key) for key in book.places}
    for gpu in OVER_LENGTHS:
        device = device_kind(parse_cluster(f"1x{gpu}").gpu)
        found |= over_lengths(source, device, variants(provider_of(source, device), gpu).values())
    kept = {key: trace for key, trace in kept.items() if "seq=*" not in key}
    return write_book(book.model, book.versions, book.files, book.spec, kept | found)


def _kernels(gpu: str) -> str:
    return str(device_kind(parse_cluster(f"1x{gpu}").gpu).kernels)


def _same_as(gpu: str | None, variant: StepVariant, traces: dict[str, bytes], key: str | None) -> bool:
    """Whether the single sample's step is the other device's: then its heads are small enough for both."""
    if gpu is None or key is None:
        return False
    other = f"{_kernels(gpu)}{key[key.index(' ') :]}"
    return traces.get(other) == traces[key]


def main(models: list[str]) -> int:
    """Writes the books of `models`, of all without any."""
    if models[:1] == ["--facts"]:
        return _write_facts(models[1:])
    if models[:1] == ["--lengths"]:
        for path in (next(BOOKS.glob(book_name(model, resolve(model).digest))) for model in models[1:] or MODELS):
            replace_file(path, with_lengths(path.read_bytes()))
        return 0
    adapter = LORA if models[:1] == ["--lora"] else None
    asked = models if adapter is None else models[1:] or UNDER_LORA
    for model in asked or (*MODELS, *AT_ONE_LENGTH):
        content = make_book(model, lengths=model in MODELS, adapter=adapter)
        path: Path = book_path(model, adapter)
        replace_file(path, content)
        if adapter is None:
            path.with_suffix(".facts").unlink(missing_ok=True)
        book = read_book(content)
        print(f"{path.name}: {len(book.places)} traces, {len(content):,} bytes, {len(book.files)} files", flush=True)
    return 0


def book_path(model: str, adapter: Adapter | None = None) -> "Path":
    """Where a model's book stands."""
    digest = resolve(model).digest
    return (
        BOOKS / book_name(model, digest)
        if adapter is None
        else ADAPTED / book_name(model, digest, adapter=adapter.key())
    )


def _write_facts(models: list[str]) -> int:
    for entry in load_index().values():
        if not entry.native or (models and entry.id not in models):
            continue
        digest = resolve(entry.id).digest
        if (BOOKS / book_name(entry.id, digest)).exists():
            continue
        try:
            content = make_facts(entry.id)
        except PlanError as problem:
            print(f"{entry.id}: {problem}", flush=True)
            continue
        path: Path = BOOKS / book_name(entry.id, digest, "facts")
        replace_file(path, content)
        book = read_book(content)
        print(f"{path.name}: {len(content):,} bytes, {len(book.files)} files", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
