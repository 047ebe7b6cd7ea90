"""What a family's name, a size or both stand for in the catalog."""

import pytest

from gpu_plan.planner.job.largest_model import first_that_fits, kin_of
from gpu_plan.planner.model.catalog_index import family_members, nearest


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("llama3", "meta-llama/Llama-3.3-70B-Instruct"),
        ("llama-3", "meta-llama/Llama-3.3-70B-Instruct"),
        ("llama3-8b", "meta-llama/Llama-3.1-8B"),
        ("meta-llama/Llama-3-8B", "meta-llama/Llama-3.1-8B"),
        ("llama-7b", "meta-llama/Llama-2-7b-hf"),
        ("gemma", "google/gemma-4-26B-A4B"),
        ("deepseek", "deepseek-ai/DeepSeek-V4-Flash"),
        ("phi", "microsoft/Phi-4-mini-instruct"),
    ],
)
def test_the_newest_of_a_family_is_first(asked: str, first: str) -> None:
    assert family_members(asked)[0] == first
    assert nearest(asked).startswith(f" Did you mean {first}")


def test_a_size_alone_means_dense_models_of_that_size() -> None:
    found = family_members("70b")
    assert "meta-llama/Llama-3.1-70B" in found
    assert all("70b" in name.lower() for name in found)
    assert family_members("no such family") == []


def test_of_equal_models_the_one_that_was_asked_about_is_looked_at_first() -> None:
    for asked in ("meta-llama/Llama-3.1-8B", "meta-llama/Meta-Llama-3-8B"):
        kin = kin_of(asked)
        size = next(one.parameters for one in kin if one.id == asked)
        assert [one.id for one in kin if one.parameters == size][-1] == asked


def test_the_largest_model_is_looked_for_from_above() -> None:
    kin = kin_of("openai-community/gpt2")
    names = [entry.id.rpartition("/")[2] for entry in kin]
    assert names == ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"]
    found = first_that_fits(kin[::-1], lambda entry: "so" if entry.id.endswith(("medium", "gpt2")) else None)
    assert found == (
        "openai-community/gpt2-medium",
        "so",
        ["openai-community/gpt2-xl", "openai-community/gpt2-large"],
    )
    assert first_that_fits(kin, lambda entry: None)[0] is None
