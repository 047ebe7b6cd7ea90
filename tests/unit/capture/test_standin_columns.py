"""Which columns a stand-in for a data set has: by its id, or by what the script's text asks for."""

import pytest

from gpu_plan.planner.capture.standin.columns import columns_in, kind_of
from gpu_plan.planner.capture.standin.rows import shown, text, value
from gpu_plan.planner.capture.standin.schemas import SCHEMAS, schema_of, splits_of
from gpu_plan.planner.capture.standin.told import NotAtHandError, Told


def test_public_sets_are_known_by_their_short_name() -> None:
    assert set(schema_of("nyu-mll/glue", "mrpc") or ()) == {"sentence1", "sentence2", "label", "idx"}
    assert set(schema_of("stanfordnlp/imdb", None) or ()) == {"text", "label"}
    assert schema_of("nobody/knows", None) is None
    assert (schema_of("HuggingFaceH4/ultrafeedback_binarized", None) or {})["messages"] == "chat"
    assert "messages" not in (schema_of("trl-lib/ultrafeedback_binarized", None) or {})
    assert splits_of("HuggingFaceH4/ultrachat_200k")[:2] == ("train_sft", "test_sft")
    assert splits_of("nobody/knows") == ("train", "validation", "test")


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_kind_can_be_made(name: str) -> None:
    for kind in SCHEMAS[name].values():
        assert value(kind, 3) is not None


def test_columns_are_read_from_the_functions_that_are_mapped() -> None:
    source = """
def tokenize(examples):
    return tokenizer(examples["article"], text_target=examples["summary"])
ds = ds.map(tokenize)
config = SFTConfig(dataset_text_field="body")
ds["train"], batch["input_ids"], results["score"]
"""
    assert columns_in([source]) == {"article": "text:1024", "summary": "text:1024", "body": "text:1024"}
    assert columns_in(["def f(:"]) == {}
    assert columns_in([], ["--dataset_text_field", "content", "--text_column=t", "--lr", "1"]) == {
        "content": "text:1024",
        "t": "text:1024",
    }


def test_a_column_says_by_its_name_what_stands_in_it() -> None:
    assert kind_of("messages") == "chat"
    assert kind_of("label") == "label:2"
    assert kind_of("Prompt") == "text:128"
    assert kind_of("score_chosen") == "float"
    assert kind_of("text") == "text:1024"
    assert len(text(40, 1).split()) == 40
    assert text(40, 1) != text(40, 2)
    assert value("(a=texts:2:3, b=ints:2)", 0) == {"a": [text(3, 0), text(3, 1)], "b": [1, 2]}
    assert shown({"text": "text:9", "label": "label:2"}) == "text (9 words), label"


def test_nothing_is_stood_in_for_unasked() -> None:
    with pytest.raises(NotAtHandError, match="the data set imdb is not at hand: --data standin"):
        Told(asked=False).need("the data set imdb")
    told = Told()
    told.need("anything")
    told.tell("once")
    told.tell("once")
    assert told.lines == ["once"]


def test_columns_are_read_from_what_is_made_of_a_loaded_set() -> None:
    source = """
train = load_dataset("a/b", split="train").select(range(10))
dev = train.filter(f)
queries = dev["query"][:10]
whole = datasets.load_dataset("a/b").remove_columns(["lang"])
whole["train"], other["column"], whole.rename_column("body", "text")
"""
    assert set(columns_in([source])) == {"query", "lang", "body"}


def test_no_two_rows_of_a_stand_in_are_alike() -> None:
    assert len({text(20, row) for row in range(512)}) == 512
    assert len({cell for row in range(64) for cell in value("texts:10:20", row)}) == 640
    assert set(value("texts:4:1", 511)) <= {value("text:1", row) for row in range(512)}
    assert value("flags:4", 1) == [0, 1, 0, 0]
