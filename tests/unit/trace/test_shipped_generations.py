"""Books of generations: served for what they stand for, named where damaged, and one line for what is in none."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.source.resolve import ModelSource, resolve
from gpu_plan.planner.options.generation import quantisation, read_given, weight_type
from gpu_plan.planner.trace.device import DeviceKind, device_kind
from gpu_plan.planner.trace.generation import shelf as generations
from gpu_plan.planner.trace.generation.provider import GenerationProvider
from gpu_plan.planner.trace.generation.shelf import find_generations, generation_key
from gpu_plan.planner.trace.generation.variant import GenerationVariant
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.shipped import needed
from gpu_plan.planner.trace.shipped.book import read_book, write_book
from gpu_plan.planner.trace.shipped.lookup import GENERATED
from gpu_plan.planner.trace.shipped.needed import NotTraceableError
from gpu_plan.planner.workload.generation import CacheKind
from gpu_plan.planner.workload.training import Attention

LLAMA, DEEPSEEK = "meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-V3"
PLAIN = GenerationVariant(prompt=4095, steps=2, batch=1, dtype="bfloat16", attention=Attention.SDPA)


def kind(gpu: str) -> DeviceKind:
    return device_kind(parse_cluster(f"1x{gpu}").gpu)


def provider(model: str, gpu: str, note: Callable[[str], None] = lambda _: None) -> GenerationProvider:
    source, given = resolve(model), read_given({"task": "infer"}, ())
    return GenerationProvider(
        source=source,
        device=kind(gpu),
        attention="sdpa",
        dtype=weight_type(given.precision, source)[0].dtype,
        scheme=quantisation(given, source),
        use_cache=False,
        note=note,
    )


@pytest.fixture
def nothing_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needed, "find_spec", lambda _: None)


@pytest.mark.usefixtures("nothing_traces")
def test_what_is_shipped_needs_no_tracing() -> None:
    llama = provider(LLAMA, "A100-80GB")
    assert llama.spec().num_parameters == 8_030_261_248
    assert (llama.merged(), llama.packed()) == (frozenset(), ())
    assert llama.text_config()["num_key_value_heads"] == 8
    whole, many = (llama.trace(variant) for variant in (PLAIN, _sized(5000, 33)))
    assert (whole.tokens_per_sample, whole.samples) == (4095, (1,))
    assert (many.tokens_per_sample, many.samples) == (5000, (33,))


@pytest.mark.usefixtures("nothing_traces")
@pytest.mark.parametrize("asked", [(100, 1), (131_072, 1), (4095, 5000)])
def test_beyond_what_was_recorded_one_line_says_what_tracing_needs(asked: tuple[int, int]) -> None:
    with pytest.raises(NotTraceableError, match=r"no trace of this is shipped, and tracing needs torch, .*pip install"):
        provider(LLAMA, "H100").trace(_sized(*asked))


@pytest.mark.usefixtures("nothing_traces")
def test_a_refusal_is_known_without_building_anything() -> None:
    stage = GenerationVariant(
        prompt=4095, steps=2, batch=1, dtype="bfloat16", attention=Attention.SDPA, quantize="fp8", pipeline_parallel=2
    )
    with pytest.raises(CannotSplitError, match="DeepseekV3ForCausalLM cannot be cut into stages with weights"):
        provider(DEEPSEEK, "H200").trace(stage)


@pytest.mark.usefixtures("nothing_traces")
def test_what_is_quantised_is_served_for_its_device_alone() -> None:
    assert provider(DEEPSEEK, "H200").spec().num_parameters == 671_026_404_352
    with pytest.raises(NotTraceableError):
        provider(DEEPSEEK, "B200").spec()


def test_what_no_book_has_has_no_key() -> None:
    def key(variant: GenerationVariant = PLAIN, gpu: str = "H100") -> str | None:
        return generation_key(kind(gpu), "sdpa", variant, alike=True)

    assert key() == key(_sized(77, 5)) == key(gpu="B200") != key(gpu="A100-80GB")
    assert key(gpu="cpu") is None
    static = GenerationVariant(
        prompt=9, steps=2, batch=1, dtype="bfloat16", attention=Attention.SDPA, cache=CacheKind.STATIC, cache_length=16
    )
    pieces = GenerationVariant(prompt=9, steps=2, batch=1, dtype="bfloat16", attention=Attention.SDPA, chunks=(4, 5))
    assert key(static) is key(pieces) is None


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut off": (lambda content: content[:-9], "its checksum does not hold"),
    "edited": (lambda content: content[:5000] + b"?" + content[5001:], "its checksum does not hold"),
    "another format": (lambda content: content.replace(b"traces 3", b"traces 2", 1), "another format"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_book_is_named_and_passed_over(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change, why = DAMAGES[damage]
    notes = _rewritten(change, tmp_path, monkeypatch)
    (note,) = notes
    assert [part for part in (why, "traced anew", "meta-llama--Llama-3.1-8B") if part not in note] == []


def test_a_book_of_other_code_is_named_and_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(content: bytes) -> bytes:
        book = read_book(content)
        files = {file: "0" * 16 if file.endswith("modeling_llama.py") else known for file, known in book.files.items()}
        return write_book(book.model, book.versions, files, book.spec, {}, facts=book.facts)

    notes = _rewritten(other, tmp_path, monkeypatch)
    assert len(notes) == 1
    assert "of other code than transformers/models/llama/modeling_llama.py of transformers" in notes[0]


def test_a_generation_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(content: bytes) -> bytes:
        book = read_book(content)
        traces = {key: book.stored(key)[:-8] for key in book.places if key.endswith(" 0") and "tp=1 pp=0/1" in key}
        return write_book(book.model, book.versions, book.files, book.spec, traces, facts=book.facts)

    source, told = _placed(other, tmp_path, monkeypatch), list[str]()
    found = find_generations(source.digest, kind("H100"), "sdpa", "bfloat16", None, told.append)
    assert found is not None
    assert found.trace(PLAIN) is None
    assert ["cannot be read" in note for note in told] == [True]


def _sized(prompt: int, batch: int) -> GenerationVariant:
    return GenerationVariant(prompt=prompt, steps=2, batch=batch, dtype="bfloat16", attention=Attention.SDPA)


def _placed(change: Callable[[bytes], bytes], folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModelSource:
    source = resolve(LLAMA)
    path = next(GENERATED.glob(f"*.{source.digest[:16]}.*"))
    (folder / path.name).write_bytes(change(path.read_bytes()))
    monkeypatch.setattr(generations, "GENERATED", folder)
    return source


def _rewritten(change: Callable[[bytes], bytes], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is told where the book was changed so, which is not served."""
    source, told = _placed(change, folder, monkeypatch), list[str]()
    assert find_generations(source.digest, kind("H100"), "sdpa", "bfloat16", None, told.append) is None
    return told
