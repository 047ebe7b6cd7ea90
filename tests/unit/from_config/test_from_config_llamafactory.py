"""LLaMA-Factory v1's DPO as a job document: which models, what their logits hold, what is refused."""

from typing import Any

import pytest

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.documents.find import of_table
from gpu_plan.planner.options.several.read import read_job

FULL: dict[str, Any] = {
    "model": "Qwen/Qwen3-4B", "dist_config": {"name": "fsdp2"}, "train_dataset": "data/pairs.yaml",
    "micro_batch_size": 2, "cutoff_len": 4096, "global_batch_size": 16, "output_dir": "outputs/run",
}  # fmt: skip
LORA = {**FULL, "peft_config": {"name": "lora", "r": 16, "target_modules": "all"}}


def job(content: dict[str, Any], where: str = "train_dpo.yaml") -> dict[str, Any]:
    written = of_table(content, where, None)
    assert written is not None
    found = written.table()
    read_job(found, "here")
    return found


def test_the_reference_is_a_copy_of_the_policy_in_fp32() -> None:
    """_init_ref_model: deepcopy of the sharded policy, whose shards are fp32; a row holds both answers of a pair."""
    found = job(FULL)
    assert list(found["models"]) == ["policy", "reference"]
    policy, reference = found["models"].values()
    assert (policy["strategy"], policy["reduce_dtype"], policy["loss"]) == ("fsdp", "float32", "llamafactory-v1")
    assert (reference["precision"], reference["loss"]) == ("fp32", "llamafactory-v1-alone")
    assert [(one["name"], one["micro_batch"]) for one in found["phases"]] == [("reference", 2), ("update", 2)]
    assert (found["prompt_len"], found["completion_len"]) == (2048, 2048)


def test_adapters_and_losses_without_a_reference_have_one_model() -> None:
    found = job(LORA)
    assert list(found["models"]) == ["policy"]
    assert (found["models"]["policy"]["lora_rank"], found["models"]["policy"]["lora_targets"]) == (16, "all-linear")
    alone = job({**FULL, "pref_loss": "simpo"})
    assert list(alone["models"]) == ["policy"]
    assert alone["models"]["policy"]["loss"] == "llamafactory-v1-alone"


def test_its_name_says_what_it_trains_by() -> None:
    assert of_table(FULL, "train_full.yaml", None) is None
    assert of_table({**FULL, "output_dir": "outputs/qwen-dpo"}, "train_full.yaml", None) is not None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dist_config": {"name": "deepspeed"}}, "is written for FSDP2"),
        ({"cp_size": 2}, "takes whole sequences"),
        ({"bf16": False}, "is written for bf16"),
        ({"batching_strategy": "padding_free"}, "rows of cutoff_len"),
        ({"pref_loss": "ipo"}, "sigmoid, orpo and simpo"),
        ({"quant_config": {"name": "bnb"}}, "quant_config.name is not said"),
        ({"model": None}, "names no model"),
    ],
)
def test_what_a_document_cannot_say_is_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        of_table({**FULL, **changes}, "train_dpo.yaml", None)
