"""Keys that change memory or time are planned, said or refused: never called harmless, never guessed."""

import json

import pytest

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.convert import Converted, convert
from gpu_plan.planner.from_config.harmless import harmless

_FSDP = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "FSDP",
    "num_machines": 1,
    "num_processes": 4,
    "mixed_precision": "bf16",
}
_TITAN = {
    "model": {"name": "llama3", "flavor": "8B", "converters": ["float8"]},
    "training": {"local_batch_size": 1, "seq_len": 2048},
    "parallelism": {"data_parallel_shard_degree": -1},
}


def _converted(content: dict[str, object]) -> Converted:
    return convert(json.loads(json.dumps(content)), "file", lambda path, key: {})


def _settings(content: dict[str, object]) -> dict[str, str]:
    return {said.option: said.value for said in _converted(content).options if said.setting}


def test_parameters_of_fsdp1_are_flat_where_the_file_says_so():
    whole = {"fsdp_version": 1, "fsdp_sharding_strategy": "FULL_SHARD", "fsdp_use_orig_params": False}
    assert _settings({**_FSDP, "fsdp_config": whole})["fsdp.use_orig_params"] == "false"
    assert "fsdp.use_orig_params" not in _settings({**_FSDP, "fsdp_config": {**whole, "fsdp_use_orig_params": True}})
    halves = _converted({**_FSDP, "fsdp_config": {**whole, "fsdp_sharding_strategy": "SHARD_GRAD_OP"}})
    assert any("fsdp_use_orig_params: false" in line for line in halves.approximated)
    second = _converted({**_FSDP, "fsdp_config": {**whole, "fsdp_version": 2}})
    assert any("does not heed it" in line for line in second.notes)
    assert not second.not_understood


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"per_device_train_batch_size": 1, "optim": "galore_adamw"}, "optim: galore_adamw"),
        ({"finetuning_type": "full", "cutoff_len": 512, "stage": "sft", "use_apollo": True}, "use_apollo: true"),
        (
            {
                "train_micro_batch_size_per_gpu": 1,
                "zero_optimization": {"stage": 2},
                "optimizer": {"type": "OneBitAdam"},
            },
            "optimizer.type: OneBitAdam",
        ),
    ],
)
def test_an_optimizer_that_nothing_knows_is_refused_by_name(content, named):
    with pytest.raises(InputError, match=f"{named} is an optimizer that is not planned for: write one that is"):
        _converted(content)


@pytest.mark.parametrize(
    "key",
    ["torch_empty_cache_steps", "full_determinism", "neftune_noise_alpha", "group_by_length"],
)
def test_what_no_plan_follows_is_said(key):
    found = _converted({"per_device_train_batch_size": 1, "output_dir": "x", key: 5 if key[0] in "tn" else True})
    assert any(line.startswith(key) for line in found.approximated)


def test_tf32_changes_the_time_of_fp32_alone():
    content = {"per_device_train_batch_size": 1, "output_dir": "x", "tf32": True}
    assert any(line.startswith("tf32") for line in _converted(content).approximated)
    assert not any(line.startswith("tf32") for line in _converted({**content, "bf16": True}).approximated)


@pytest.mark.parametrize(
    "key", ["eval_accumulation_steps", "fp16.fp16_master_weights_and_grads", "debug.deterministic"]
)
def test_what_changes_memory_or_time_is_not_harmless(key):
    assert not harmless(key)


def test_axolotl_evaluates_where_there_is_a_set_for_it():
    content = {"base_model": "a/b", "micro_batch_size": 2, "sequence_len": 512, "val_set_size": 0.1}
    assert _settings(content)["eval.batch"] == "2"
    assert _settings({**content, "eval_batch_size": 4})["eval.batch"] == "4"
    assert "eval.batch" not in _settings({**content, "val_set_size": 0})
    assert "eval.batch" not in _settings({**content, "eval_strategy": "no"})


def test_torchtitan_gathers_float8_and_validates_as_it_is_told():
    assert _settings(_TITAN)["fp8.all_gather"] == "false"
    assert _settings({**_TITAN, "float8": {"enable_fsdp_float8_all_gather": True}})["fp8.all_gather"] == "true"
    assert _settings({**_TITAN, "validation": {"enable": True, "local_batch_size": 3}})["eval.batch"] == "3"


def test_torchtune_validates_and_compiles_in_parts():
    content = {
        "model": {"_component_": "torchtune.models.llama3_1.llama3_1_8b"},
        "tokenizer": {"_component_": "t", "max_seq_len": 512},
        "loss": {"_component_": "torchtune.modules.loss.LinearCrossEntropyLoss"},
        "optimizer": {"_component_": "torch.optim.AdamW"},
        "batch_size": 2,
        "dtype": "bf16",
        "dataset_val": {"_component_": "d"},
        "compile": {"model": True, "loss": False},
    }
    assert "eval.batch" not in _settings(content)
    assert _settings({**content, "run_val_every_n_steps": 5})["eval.batch"] == "2"
    assert _settings({**content, "run_val_every_n_steps": 5, "batch_size_val": 4})["eval.batch"] == "4"
    assert any("compile.model: true" in line for line in _converted(content).approximated)
    assert not any("compile" in line for line in _converted({**content, "compile": {"model": False}}).approximated)


def test_swift_evaluates_where_there_is_a_set_for_it():
    content = {"model": "a/b", "train_type": "full", "dataset": ["d"], "max_length": 512}
    assert "eval.batch" not in _settings(content)
    assert _settings({**content, "split_dataset_ratio": 0.1})["eval.batch"] == "1"
    assert _settings({**content, "val_dataset": ["v"], "per_device_eval_batch_size": 4})["eval.batch"] == "4"


def test_quantised_bases_of_loops_keep_their_paged_optimizer():
    content = {"checkpoint_dir": "checkpoints/a/b", "precision": "bf16-true", "quantize": "bnb.nf4", "lora_r": 8}
    whole = {**content, "train": {"micro_batch_size": 1, "global_batch_size": 1}, "devices": 1}
    assert next(said.value for said in _converted(whole).options if said.option == "optimizer") == "paged-adamw"
