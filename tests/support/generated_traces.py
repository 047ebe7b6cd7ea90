"""Makes the generations that are shipped: `python -m tests.support.generated_traces [MODEL ...]`, of all without any.

For each model what the default search asks for, of every degree and stage, over all prompts and batches within the
recorded ones; and the files of other projects that recording passed through. Needs the pinned versions.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.build.text_config import text_config
from gpu_plan.planner.model.kernels.sinks import has_kernel
from gpu_plan.planner.model.source.resolve import ModelSource, resolve
from gpu_plan.planner.options.generation import InferGiven, make_workload, quantisation, read_given, weight_type
from gpu_plan.planner.search.generation.limits import MOST_BATCH, MOST_CONTEXT
from gpu_plan.planner.strategy.generation.layout import Layout, layouts
from gpu_plan.planner.trace.device import DeviceKind, device_kind
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.generation.session import GenerationSession
from gpu_plan.planner.trace.generation.shelf import generation_key, part_word
from gpu_plan.planner.trace.generation.variant import GenerationVariant
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.shipped.book import read_book, write_book
from gpu_plan.planner.trace.shipped.lookup import GENERATED, book_name
from gpu_plan.planner.trace.sizes.errors import NotLinearError
from gpu_plan.planner.trace.sizes.planes import Plane, Size, plane_of
from gpu_plan.planner.trace.storage.over_sizes import written_plane
from gpu_plan.planner.whole_file import replace_file
from gpu_plan.planner.workload.generation import MOST_TOKENS
from gpu_plan.planner.workload.training import Attention
from tests.support.shipped_traces import digests, made_with, passed_through

MODELS = (
    "meta-llama/Llama-3.1-8B",
    "deepseek-ai/DeepSeek-V3",
    "openai/gpt-oss-120b",
    "openai/gpt-oss-20b",
    "mistralai/Mixtral-8x7B-v0.1",
    "Qwen/Qwen3-235B-A22B",
    "Qwen/Qwen3-8B",
    "meta-llama/Llama-3.1-70B",
    "Qwen/Qwen3-32B",
    "meta-llama/Llama-3.2-1B",
    "Qwen/Qwen2.5-7B",
)
"""Most wanted first."""
GPUS = ("H100", "A100-80GB")
"""One of each choice of kernels; what is quantised asks which device it is, and is recorded for the first alone."""
ALIKE = {"L40S": "A100-80GB"}
"""A device that chooses as another one where heads are small."""
_SMALL_HEADS = 192
CLUSTERS = ("1xH100", "8xH100", "2x8xH100")
NEW = (1, 2)
"""New tokens: the prefill and one step; those of any more are the prefill and two steps, recorded."""
PROMPTS = (127, 1000, 4095)
"""Prompts of a plane but for the longest, where the model has so many positions; odd ones among them."""
MORE_PROMPTS = (127, 511, 1000, 2047, 2048, 3000, 4095, 4096, 6001, 8191, 8192, 12289, 16384, 20001, 32768)
"""Where those are no plane: of a window of attention, ones on both sides of its length."""
T = TypeVar("T")
_PROVED = 4
"""Prompts that a plane of one sample needs at least."""
FEW, SOME = 2, 17
"""Batches of a plane of several samples, beside as many as one plan may have."""


@dataclass
class Made:
    """What goes into a book."""

    planes: dict[str, bytes]
    refusals: dict[str, str]


def given_of() -> InferGiven:
    """Of `--task infer` alone."""
    return read_given({"task": "infer"}, ())


def session_of(source: ModelSource, device: DeviceKind, attention: Attention = Attention.SDPA) -> GenerationSession:
    """What records a model's default generation, of which what follows rules is left to be settled."""
    given = given_of()
    dtype = weight_type(given.precision, source)[0].dtype
    return GenerationSession(source, device, str(attention), dtype, quantisation(given, source), ruled=True)


def attentions(source: ModelSource, device: DeviceKind) -> tuple[Attention, ...]:
    """What is asked for: the default one, and beside a plan a class's own kernel, where torch has none for it."""
    assert source.config is not None
    own = has_kernel(source.config.get("model_type"), device.capability)
    return (Attention.SDPA, Attention.FLASH) if own else (Attention.SDPA,)


def variants(source: ModelSource, session: GenerationSession) -> list[GenerationVariant]:
    """What the default search asks for, at one prompt and one sample."""
    given, found = given_of(), dict[str, GenerationVariant]()
    for gpus in CLUSTERS:
        cluster = parse_cluster(gpus)
        dtype, scheme = weight_type(given.precision, source), quantisation(given, source)
        workload = make_workload(given, False, cluster, session.spec(), dtype, scheme)
        for layout in layouts(workload, cluster):
            for new in NEW:
                for stage in _stages(layout):
                    variant = GenerationVariant(
                        prompt=PROMPTS[0],
                        steps=new + 1,
                        batch=1,
                        dtype=workload.precision.dtype,
                        cache=workload.cache,
                        kv_dtype=workload.kv_dtype,
                        attention=workload.attention,
                        quantize=workload.quantize,
                        tensor_parallel=layout.tensor_parallel,
                        pipeline_parallel=layout.pipeline_parallel,
                        stage=stage,
                    )
                    found.setdefault(variant.key(), variant)
    # Those of one part, one after the other, are recorded in one that is built once.
    return sorted(found.values(), key=lambda one: (one.tensor_parallel, one.pipeline_parallel, one.stage, one.steps))


def _stages(layout: Layout) -> list[int]:
    last = layout.pipeline_parallel - 1
    return sorted({0, min(1, last), last})


def sizes_of(prompts: Sequence[int], batches: str) -> list[Size]:
    """Sizes at which a plane is recorded: the shortest prompts by themselves, or of several samples."""
    if batches == "alone":
        return [(prompt, 1) for prompt in prompts]
    found = [(prompt, FEW) for prompt in prompts]
    for batch, most in ((SOME, 3), (MOST_BATCH, 1)):
        found += [(prompt, batch) for prompt in prompts if prompt * batch <= MOST_TOKENS][:most]
    return found


def planes(session: GenerationSession, variant: GenerationVariant, positions: int) -> list[Plane]:
    """Of one sample, and of several: one of each, or where none is proved several spans."""
    known: dict[Size, StepTrace] = {}

    def recorded(prompts: Sequence[int], batches: str) -> dict[Size, StepTrace]:
        sizes = sizes_of(prompts, batches)
        for size in sizes:
            if size not in known:
                known[size] = session.trace(replace(variant, prompt=size[0], batch=size[1]))
        return {size: known[size] for size in sizes}

    found: list[Plane] = []
    for batches, most in (("alone", positions), ("several", min(positions, MOST_TOKENS // FEW))):
        try:
            found.append(plane_of(recorded(_within(PROMPTS, most), batches)))
        except NotLinearError:
            found += _spans(lambda prompts, of=batches: recorded(prompts, of), _within(MORE_PROMPTS, most))
    return found


def _within(prompts: Sequence[int], positions: int) -> list[int]:
    return [prompt for prompt in prompts if prompt < positions - 1] + [positions - 1]


def _spans(recorded: Callable[[Sequence[int]], dict[Size, StepTrace]], prompts: Sequence[int]) -> list[Plane]:
    """Spans of prompts with polynomials in common, each as long as it gets."""
    found: list[Plane] = []
    start = 0
    while start < len(prompts):
        best: tuple[Plane, int] | None = None
        for end in range(start + _PROVED, len(prompts) + 1):
            try:
                best = plane_of(recorded(prompts[start:end])), end - 1
            except NotLinearError:
                break
        if best is None:
            start += 1
        else:
            found.append(best[0])
            start = best[1]  # a length on a bend belongs to both
            if start == len(prompts) - 1:
                break
    return found


def make_planes(
    session: GenerationSession,
    device: DeviceKind,
    asked: Iterable[GenerationVariant],
    attention: Attention = Attention.SDPA,
    *,
    alike: bool,
) -> Made:
    """All planes of the variants, by their keys, and why others cannot be recorded."""
    made = Made(planes={}, refusals={})
    positions = min(session.spec().max_positions or MOST_CONTEXT, MOST_TOKENS)
    with session.held():
        for each in asked:
            variant = replace(each, attention=attention)
            key = generation_key(device, str(attention), variant, alike=alike)
            assert key is not None
            try:
                found = planes(session, variant, positions)
            except CannotSplitError as problem:
                made.refusals[key] = str(problem)
                continue
            for number, plane in enumerate(found):
                made.planes[f"{key} {number}"] = written_plane(plane)
    return made


def facts_of(source: ModelSource, session: GenerationSession) -> dict[str, object]:
    """What a plan asks of the built model beside its parameters."""
    assert source.config is not None
    config = text_config(source.config)
    known = {key: value for key, value in config.items() if _is_plain(value)}
    return {"merged": sorted(session.merged()), "packed": sorted(session.packed()), "text config": known}


def _is_plain(value: object) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except TypeError:
        return False


def make_book(model: str) -> bytes:
    """One model's book of generations."""
    source, made, session = resolve(model), Made(planes={}, refusals={}), None
    files: set[str] = set()
    alike = quantisation(given_of(), source) is None
    for gpu in GPUS if alike else GPUS[:1]:
        device = device_kind(parse_cluster(f"1x{gpu}").gpu)
        if session is None:
            _once(source, session_of(source, device))  # whatever is imported is imported now, and not counted
            with passed_through(files):
                session = session_of(source, device)
                asked = _once(source, session)
                facts = facts_of(source, session)
            if not alike:
                facts["device"] = device.key
        for attention in attentions(source, device):
            here = make_planes(session_of(source, device, attention), device, asked, attention, alike=alike)
            made.planes |= here.planes
            made.refusals |= here.refusals
    for gpu, other in ALIKE.items() if alike and _heads_are_small(facts) else ():
        mine, its = (str(device_kind(parse_cluster(f"1x{name}").gpu).kernels) for name in (gpu, other))
        made.planes |= _renamed(made.planes, its, mine)
        made.refusals |= _renamed(made.refusals, its, mine)
    assert session is not None
    return write_book(model, made_with(), digests(files), session.spec(), made.planes, made.refusals, facts)


def _renamed(known: Mapping[str, T], its: str, mine: str) -> dict[str, T]:
    return {f"{mine}{key[len(its) :]}": known[key] for key in known if key.startswith(f"{its} ")}


def _heads_are_small(facts: Mapping[str, object]) -> bool:
    config = facts["text config"]
    assert isinstance(config, dict)
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    size = config.get("head_dim") or (hidden // heads if hidden and heads else None)
    return isinstance(size, int) and size <= _SMALL_HEADS


def _once(source: ModelSource, session: GenerationSession) -> list[GenerationVariant]:
    """What the default search asks for, each recorded once."""
    asked = variants(source, session)
    with session.held():
        for variant in asked:
            with suppress(CannotSplitError):
                session.trace(variant)
    return asked


def book_path(model: str) -> Path:
    """Where a model's book of generations stands."""
    source, given = resolve(model), given_of()
    word = part_word(weight_type(given.precision, source)[0].dtype, quantisation(given, source))
    return GENERATED / book_name(model, source.digest, adapter=word)


def main(models: Sequence[str]) -> int:
    """Writes the books of `models`, of all without any; of those alone whose generations are shipped."""
    for model in MODELS if not models else [model for model in MODELS if model in models]:
        content = make_book(model)
        path = book_path(model)
        path.parent.mkdir(exist_ok=True)
        replace_file(path, content)
        book = read_book(content)
        print(
            f"{path.name}: {len(book.places)} generations, {len(content):,} bytes, {len(book.files)} files", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
