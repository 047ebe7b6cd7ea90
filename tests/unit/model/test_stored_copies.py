"""Tied weights that a checkpoint holds twice: both are loaded, so that loading may be the peak."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.source.copies import check_head, stored_copies
from gpu_plan.planner.model.source.headers import StoredWeights
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ParameterSpec

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def _parameters(vocabulary: int, width: int, *, tied: bool = True) -> list[ParameterSpec]:
    shape = (vocabulary, width)
    first = ParameterSpec(name=EMBEDDING, shape=shape, dtype="bfloat16", trainable=True)
    return [first, replace(first, name=HEAD, tied_to=EMBEDDING if tied else None)]


def _stored(*names: str) -> StoredWeights:
    entries = {name: ((8, 4), "bfloat16") for name in names}
    return StoredWeights(entries=entries, parameters=32 * len(names), bytes=64 * len(names), by_dtype={"bfloat16": 32})


def _source(**changed: object) -> ModelSource:
    source = ModelSource(kind="folder", id="there", config={}, digest="x", path=Path("config.json"))
    return replace(source, **changed)  # type: ignore[arg-type]


def test_headers_tell() -> None:
    both = _source(stored=_stored(EMBEDDING, HEAD))
    assert stored_copies(both, _parameters(8, 4), quantised=True) == {HEAD: EMBEDDING}
    assert stored_copies(both, _parameters(8, 4, tied=False), quantised=True) == {}
    assert stored_copies(_source(stored=_stored(EMBEDDING)), _parameters(8, 4), quantised=False) == {}
    assert stored_copies(_source(), _parameters(8, 4), quantised=False) == {}


@pytest.mark.parametrize(("model", "twice"), [("Qwen/Qwen3-0.6B", True), ("Qwen/Qwen2.5-0.5B", False)])
def test_the_catalog_tells_by_the_published_count(model: str, twice: bool) -> None:
    """Qwen3-0.6B was published with 751,632,384 elements, of which 155,582,464 are the head's copy."""
    width = 1024 if twice else 896
    found = stored_copies(_source(kind="catalog", id=model), _parameters(151936, width), quantised=False)
    assert bool(found) == twice
    assert not stored_copies(_source(kind="catalog", id=model), _parameters(151936, width), quantised=True)


def test_a_head_that_no_file_holds_is_told() -> None:
    alone = _source(stored=_stored(EMBEDDING))
    with pytest.raises(InputError, match=r"^there: none of its files holds lm_head, and tie_word_embeddings is false"):
        check_head(alone, _parameters(8, 4, tied=False))
    check_head(alone, _parameters(8, 4))
    check_head(_source(), _parameters(8, 4, tied=False))
    for packed in (HEAD, "lm_head.qweight"):
        check_head(_source(stored=_stored(EMBEDDING, packed)), _parameters(8, 4, tied=False))
