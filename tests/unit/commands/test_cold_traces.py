"""The benchmark of models traced cold: what it asks is understood, and none of its models is shipped."""

from benchmarks.answers.cold_traces import MODELS, page
from gpu_plan.planner.model.catalog_index import load_index
from gpu_plan.planner.options.words import main_parser
from gpu_plan.verbs import VERBS
from tests.support.searched_traces import CLUSTERS
from tests.support.shipped_traces import AT_ONE_LENGTH, UNDER_LORA
from tests.support.shipped_traces import MODELS as SHIPPED


def test_every_model_is_a_command_line_of_the_catalog_and_its_class_the_one_that_is_built() -> None:
    entries = {entry.id: entry for entry in load_index().values()}
    for model, cold in MODELS.items():
        main_parser(VERBS).parse_args([model, "--gpus", cold.gpus])
        assert (entries[model].built_as or "").rpartition(">")[2] == cold.imports


def test_twenty_models_of_every_kind_none_of_them_shipped() -> None:
    entries = {entry.id: entry for entry in load_index().values()}
    assert len(MODELS) == 20
    assert {entries[model].kind for model in MODELS} == {entry.kind for entry in entries.values()}
    assert not MODELS.keys() & {*SHIPPED, *AT_ONE_LENGTH, *UNDER_LORA, *CLUSTERS}


def test_figures_stand_on_the_page_the_farthest_from_its_class_last() -> None:
    figures = {"pairs": 1, "load": 2.4, "clock_seconds": 9.0, "seconds": 9.0, "class_seconds": 5.0, "ratio": 1.8}
    models = {"google/gemma-7b": figures, "databricks/dbrx-instruct": figures | {"ratio": 1.9}}
    told = page({"machine": "here", "models": models | {"google/gemma-2b": figures}})
    assert "1 of 2 meet it; the middle one takes 1.85 times its class" in told
    assert "| google/gemma-7b | dense | 8.54 | 8xH100 | 1 | 2 | 9.00 | 5.00 | 1.80 |" in told
    assert told.index("gemma-7b") < told.index("dbrx")
    assert "gemma-2b" not in told
