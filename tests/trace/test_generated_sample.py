"""The generations that are shipped are what this program records today: a sample in every run, all in `make prove`."""

from dataclasses import replace

import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.options.generation import quantisation, weight_type
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.generation.provider import GenerationProvider
from gpu_plan.planner.trace.generation.session import GenerationSession
from gpu_plan.planner.trace.shipped.book import read_book
from gpu_plan.planner.trace.shipped.lookup import GENERATED
from tests.support.generated_traces import MODELS, book_path, given_of, make_book, variants
from tests.support.same_trace import assert_same_trace

SAMPLE = {
    "meta-llama/Llama-3.1-8B": ("A100-40GB", {"tensor_parallel": 2, "steps": 3}, (700, 3)),
    "deepseek-ai/DeepSeek-V3": ("H200", {"tensor_parallel": 8}, (4095, 21)),
    "mistralai/Mixtral-8x7B-v0.1": ("B200", {"tensor_parallel": 4}, (9000, 1)),
    "Qwen/Qwen3-8B": ("RTX4090", {}, (4095, 5)),
    "openai/gpt-oss-20b": ("H100", {"pipeline_parallel": 2, "stage": 1}, (5001, 40)),
}
"""On which device, which part, at which prompt and batch: sizes that no plane was made of."""


@pytest.mark.parametrize("model", SAMPLE)
def test_a_shipped_generation_is_recorded_again(model: str) -> None:
    gpu, part, (prompt, batch) = SAMPLE[model]
    source, given, device = resolve(model), given_of(), device_kind(parse_cluster(f"1x{gpu}").gpu)
    dtype, scheme = weight_type(given.precision, source)[0].dtype, quantisation(given, source)
    session = GenerationSession(source, device, "sdpa", dtype, scheme)
    shipped = GenerationProvider(
        source=source, device=device, attention="sdpa", dtype=dtype, scheme=scheme, use_cache=False
    )
    asked = replace(variants(source, session)[0], **part, prompt=prompt, batch=batch)
    told = shipped.trace(asked)
    assert shipped._session is None, "it was not shipped: run `make traces`"
    assert shipped.spec() == session.spec()
    assert shipped.merged() == frozenset(session.merged())
    assert_same_trace(told, session.trace(asked))


def test_every_model_has_its_book_and_no_other_one_is_there() -> None:
    assert {path.name for path in GENERATED.glob("*")} == {book_path(model).name for model in MODELS}


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_book_of_generations_is_made_again(model: str) -> None:
    shipped, again = read_book(book_path(model).read_bytes()), read_book(make_book(model))
    assert (again.spec, again.refusals, again.facts) == (shipped.spec, shipped.refusals, shipped.facts)
    assert again.places.keys() == shipped.places.keys()
    assert [key for key in shipped.places if again.stored(key) != shipped.stored(key)] == []
    # Functions that run once in a process are counted for the model that is recorded first.
    both = again.files.keys() & shipped.files.keys()
    assert len(both) > 60
    assert [file for file in both if again.files[file] != shipped.files[file]] == []
