"""What is shipped is what this program traces today: a sample in every run, all of it in `make prove`."""

import os
import subprocess
import sys

import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.trace.shipped.book import read_book
from gpu_plan.planner.trace.shipped.lookup import BOOKS, trace_key
from gpu_plan.planner.trace.storage import dump, written
from gpu_plan.planner.trace.storage.over_lengths import read_lengths, written_lengths
from tests.support.own_sources import ROOT
from tests.support.searched_traces import CLUSTERS, make_books
from tests.support.shipped_traces import LORA, UNDER_LORA, book_path, make_book, make_facts, variants

BOOK_FILES = sorted(BOOKS.glob("*.traces"))
SAMPLE = {
    "meta-llama/Llama-3.1-8B": ("H100", 0),
    "meta-llama/Llama-3.2-1B": ("T4", 1),
    "Qwen/Qwen2.5-7B": ("A100-80GB", 2),
    "Qwen/Qwen3-8B": ("L40S", 3),
    "Qwen/Qwen3-30B-A3B": ("H100", 0),
    "mistralai/Mixtral-8x7B-v0.1": ("A100-80GB", 1),
    "openai/gpt-oss-20b": ("H100", 0),
    "google/gemma-2-9b": ("T4", 3),
    "deepseek-ai/DeepSeek-V3": ("H100", 2),
    "openai-community/gpt2": ("H100", 1),
}
"""Which device's and which variant's single sample is traced in every run."""


@pytest.mark.parametrize("model", SAMPLE)
def test_a_sample_is_traced_again(model):
    gpu, place = SAMPLE[model]
    source, device = resolve(model), device_kind(parse_cluster(f"1x{gpu}").gpu)
    book = read_book(next(BOOKS.glob(f"*.{source.digest[:16]}.traces")).read_bytes())
    provider = TraceProvider(source=source, device=device, attention="sdpa", use_cache=False, shipped=False)
    assert provider.spec() == book.spec
    variant = list(variants(provider, gpu).values())[place]
    made = provider.trace(variant, 1)
    shipped = book.trace(trace_key(device, "sdpa", variant, made.samples))
    assert shipped is not None, "run `make traces`"
    assert dump(shipped) == dump(made), "tracing changed: run `make traces`"


@pytest.mark.slow
@pytest.mark.parametrize("model", UNDER_LORA)
def test_a_book_of_an_adapter_is_traced_again(model):
    shipped = read_book(book_path(model, LORA).read_bytes())
    again = read_book(make_book(model, adapter=LORA))
    assert again.spec == shipped.spec
    assert again.places.keys() == shipped.places.keys()
    assert [key for key in shipped.places if again.stored(key) != shipped.stored(key)] == []


@pytest.mark.slow
def test_books_of_searches_are_traced_again():
    model = "openai/gpt-oss-120b"
    for path, content in make_books(model, CLUSTERS[model]).items():
        shipped, again = read_book(path.read_bytes()), read_book(content)
        assert (again.spec, again.refusals) == (shipped.spec, shipped.refusals)
        assert {key: again.stored(key) for key in again.places} == {key: shipped.stored(key) for key in shipped.places}


FACTS = sorted(BOOKS.glob("*.facts"))


def test_a_sample_of_facts_is_found_again():
    """The smallest of a few kinds."""
    for name in ("pythia-70m", "opt-1.3b", "electra-small-discriminator", "dinov2-small"):
        path = next(path for path in FACTS if path.name.partition("--")[2].startswith(f"{name}."))
        shipped = read_book(path.read_bytes())
        again = read_book(make_facts(shipped.model))
        assert again.spec == shipped.spec
        # Of what is imported meanwhile a first time, functions run too.
        assert shipped.files.items() <= again.files.items()


@pytest.mark.slow
@pytest.mark.parametrize("path", FACTS, ids=lambda path: path.name)
def test_facts_are_found_again(path):
    shipped = read_book(path.read_bytes())
    assert read_book(make_facts(shipped.model)).spec == shipped.spec


@pytest.mark.slow
@pytest.mark.parametrize("path", BOOK_FILES, ids=lambda path: path.name)
def test_a_book_is_traced_again(path):
    shipped = read_book(path.read_bytes())
    again = made_again(shipped.model, lengths=any("seq=*" in key for key in shipped.places))
    assert again.spec == shipped.spec
    assert shipped.places.keys() <= again.places.keys()
    # Functions that run once in a process are counted for the model that is traced first.
    assert {file for file in again.files if "/models/" in file} == {
        file for file in shipped.files if "/models/" in file
    }
    both = again.files.keys() & shipped.files.keys()
    assert len(both) > 60
    assert [file for file in both if again.files[file] != shipped.files[file]] == []
    assert [key for key in shipped.places if _as_written(again, key) != _as_written(shipped, key)] == []


MAKES = """
import sys
from tests.support.shipped_traces import make_book
sys.stdout.buffer.write(make_book(sys.argv[1], lengths=sys.argv[2] == "True"))
"""


def made_again(model, lengths):
    """By a process of its own: Gemma 3 goes through its kinds of layers in the order of a set of words
    (modeling_gemma3.py: Gemma3TextModel.forward), which differs from process to process. Books are made in that of seed
    0, as `make traces` says."""
    command = [sys.executable, "-c", MAKES, model, str(lengths)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return read_book(subprocess.run(command, check=True, capture_output=True, env=environment, cwd=ROOT).stdout)


def _as_written(book, key):
    """As this program writes it: what is told of a layout has grown since some books were made, by lists that are
    empty there."""
    if "seq=*" in key:
        return written_lengths(read_lengths(book.stored(key)))
    return written(book.trace(key))
