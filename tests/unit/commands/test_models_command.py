"""`plan models` and the catalog's index."""

import argparse
import json

import pytest

from gpu_plan.commands import models
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.catalog_index import CATALOG, KINDS, find_entry, load_index, nearest, search


def _run(capsys, *arguments):
    parser = argparse.ArgumentParser()
    models.add_arguments(parser)
    assert models.run(parser.parse_args(arguments)) == 0
    return capsys.readouterr().out


def test_lists_every_model_in_aligned_columns(capsys):
    lines = _run(capsys).splitlines()
    assert len(lines) == len(load_index()) + 1
    place = lines[0].index("parameters") + len("parameters")
    llama = next(line for line in lines if line.startswith("meta-llama/Llama-3.1-8B "))
    assert llama[:place].endswith(" 8.03B")
    assert all(line == line.rstrip() for line in lines)


def test_searches_words_and_kind_together(capsys):
    rows = json.loads(_run(capsys, "qwen3 a3b", "--kind", "moe", "--json"))["models"]
    assert rows
    assert all("a3b" in row["id"].lower() and row["kind"] == "moe" for row in rows)


def test_json_gives_counts_and_their_sources(capsys):
    document = json.loads(_run(capsys, "meta-llama/Llama-3.1-8B", "--json"))
    (row,) = [row for row in document["models"] if row["id"] == "meta-llama/Llama-3.1-8B"]
    assert document["schema_version"] == 1
    assert row["parameters"] == row["published_parameters"] == 8_030_261_248
    assert row["published_parameters_source"]
    assert row["source"]


def test_nothing_found_offers_names():
    arguments = argparse.Namespace(query="meta-llama/Lama-3.1-8B", kind=None, json=False)
    with pytest.raises(InputError, match=r"Did you mean meta-llama/Llama-3\.1-8B"):
        models.run(arguments)


def test_index_and_files_agree():
    index = load_index()
    assert {entry.file for entry in index.values()} == {path.name for path in CATALOG.glob("*--*.json")}
    assert {entry.kind for entry in index.values()} == set(KINDS)
    for entry in index.values():
        assert entry.file == entry.id.replace("/", "--") + ".json"
        assert entry.native == (entry.meta_params is not None)
        if entry.status == "ok":
            assert entry.meta_params == entry.published_params


def test_an_entry_is_found_by_case_and_by_former_id():
    assert find_entry("META-LLAMA/llama-3.1-8b").id == "meta-llama/Llama-3.1-8B"
    assert find_entry("gpt2").id == "openai-community/gpt2"
    assert find_entry("meta-llama/Meta-Llama-3.1-8B").id == "meta-llama/Llama-3.1-8B"
    assert find_entry("nobody/nothing") is None


def test_nearest_with_and_without_owner():
    assert nearest("Qwen3-8").startswith(" Did you mean Qwen/Qwen3-")
    assert nearest("qwen/qwen3-8").startswith(" Did you mean Qwen/Qwen3-")
    assert nearest("zzzzzzzz") == ""


def test_search_ignores_case():
    assert search("BERT-BASE") == search("bert-base") != []
