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


def test_axolotl_evaluates_where_a_set_and_a_time_for_it_are_said():
    content = {"base_model": "a/b", "micro_batch_size": 2, "sequence_len": 512, "val_set_size": 0.1}
    assert "eval.batch" not in _settings(content)
    assert any("axolotl then never does (0.18)" in line for line in _converted(content).notes)
    timed = {**content, "eval_steps": 50}
    assert _settings(timed)["eval.batch"] == "2"
    assert _settings({**timed, "eval_batch_size": 4})["eval.batch"] == "4"
    assert "eval.batch" not in _settings({**timed, "val_set_size": 0})
    assert "eval.batch" not in _settings({**timed, "eval_strategy": "no"})
    assert _settings({**content, "eval_strategy": "epoch"})["eval.batch"] == "2"
    assert _settings({**content, "evals_per_epoch": 1, "num_epochs": 3})["eval.batch"] == "2"
    assert "eval.batch" not in _settings({**content, "evals_per_epoch": 1, "num_epochs": 1})


def test_axolotl_checkpoints_by_reentrant_ones_unless_told_otherwise():
    content = {"base_model": "a/b", "micro_batch_size": 2, "sequence_len": 512, "gradient_checkpointing": True}
    assert _settings(content)["checkpoint.reentrant"] == "true"
    told = {"gradient_checkpointing_kwargs": {"use_reentrant": False}}
    assert "checkpoint.reentrant" not in _settings({**content, **told})
    assert "checkpoint.reentrant" not in _settings({**content, "base_model": "google/gemma-4-31b"})
    assert "checkpoint.reentrant" not in _settings({**content, "gradient_checkpointing": False})


def test_swift_checkpoints_by_reentrant_ones_but_on_several_devices_alone():
    content = {"model": "a/b", "train_type": "full", "dataset": ["d"], "max_length": 512}

    def settings(world: int, **more: object) -> dict[str, str]:
        found = convert({**content, **more}, "file", lambda path, key: {}, world=world)
        return {said.option: said.value for said in found.options if said.setting}

    assert settings(1)["checkpoint.reentrant"] == "true"
    assert "checkpoint.reentrant" not in settings(8)
    assert settings(8, deepspeed="zero2")["checkpoint.reentrant"] == "true"
    assert "checkpoint.reentrant" not in settings(1, gradient_checkpointing_kwargs={"use_reentrant": False})


def test_torchtitan_gathers_float8_and_validates_as_it_is_told():
    assert _settings(_TITAN)["fp8.all_gather"] == "false"
    assert _settings({**_TITAN, "float8": {"enable_fsdp_float8_all_gather": True}})["fp8.all_gather"] == "true"
    newer = {"quantize": {"linear": {"float8": {"enable_fsdp_float8_all_gather": True}}}}
    assert _settings({**_TITAN, **newer})["fp8.all_gather"] == "true"
    assert _settings({**_TITAN, "validation": {"enable": True, "local_batch_size": 3}})["eval.batch"] == "3"
    longer = _converted({**_TITAN, "validation": {"enable": True, "seq_len": 8192}})
    assert any(
        "validation.seq_len: 8192: evaluation is planned with rows of 2048" in line for line in longer.approximated
    )
    tokens = {"num_tokens_per_microbatch_per_dp_rank": 4096, "max_context_length": 1024}
    packed = {**_TITAN, "training": tokens, "validation": {"enable": True}}
    assert _settings(packed)["eval.batch"] == "4"
    assert any("CUDA graphs" in line for line in _converted(packed).approximated)
    assert not any("CUDA graphs" in line for line in _converted(_TITAN).approximated)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"debug": {"detect_anomaly": True}}, "debug.detect_anomaly: True: planned without anomaly detection"),
        ({"profiling": {"enable_profiling": True}}, "profiling.enable_profiling: True: planned without a profiler"),
        ({"checkpoint": {"async_mode": "async"}}, "checkpoint.async_mode: async: planned without the copy"),
        ({"experimental": {"custom_import": "x"}}, None),
        ({"debug": {"seed": 1}}, ""),
        ({"checkpoint": {"async_mode": "disabled", "interval": 5}}, ""),
    ],
)
def test_tables_of_torchtitan_are_not_harmless_as_a_whole(table, said):
    found = _converted({**_TITAN, **table})
    if said is None:
        assert found.not_understood
    elif said:
        assert any(line.startswith(said) for line in found.approximated)
    else:
        assert not found.approximated
        assert not found.not_understood


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
    alone = convert({**content, "run_val_every_n_steps": 5}, "8B_full_single_device.yaml", lambda path, key: {})
    assert not any(said.option == "eval.batch" for said in alone.options)
    referred = {
        **content,
        "run_val_every_n_steps": 5,
        "batch_size_val": "${batch_size}",
        "base": "x/y",
        "size": "${none}",
    }
    assert _settings(referred)["eval.batch"] == "2"
    weights = {"checkpointer": {"checkpoint_dir": "/tmp/${base}"}, "base": "Meta-Llama-3.1-8B-Instruct"}
    assert _converted({**content, **weights}).model == "meta-llama/Meta-Llama-3.1-8B-Instruct"
    grouped = {"data_parallel_replicate_dim": 2, "data_parallel_shard_dim": 4}
    found = convert({**content, **grouped}, "8B_full.yaml", lambda path, key: {})
    assert {"strategy": "hsdp", "dp-replicate": "2"}.items() <= {
        said.option: said.value for said in found.options
    }.items()
    assert found.processes == 8
    waiting = _converted(
        {**content, "enable_async_checkpointing": True, "dataset": {"_component_": "d", "packed": True}}
    )
    assert any(line.startswith("enable_async_checkpointing") for line in waiting.approximated)
    assert "dataset.packed: true: rows are full, as planned" in waiting.notes
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


def test_swift_evaluates_one_sample_at_a_time_whatever_the_time():
    content = {"model": "a/b", "train_type": "full", "dataset": ["d"], "max_length": 512, "split_dataset_ratio": 0.01}
    assert _settings({**content, "eval_strategy": "steps"})["eval.batch"] == "1"
    assert _settings({**content, "eval_strategy": "epoch", "per_device_eval_batch_size": 4})["eval.batch"] == "4"
    assert "eval.batch" not in _settings({**content, "save_strategy": "no"})
    assert "eval.batch" not in _settings({**content, "streaming": True})
    assert "eval.batch" not in _settings({**content, "split_dataset_ratio": 0, "eval_strategy": "steps"})


_SFT = {"model_name_or_path": "a/b", "dataset_name": "d", "use_peft": True, "dataset_text_field": "text"}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("chat_template_path", "Qwen/Qwen3-0.6B", "planned without the tokens that its tokenizer adds"),
        ("chat_template_path", "a.jinja", ""),
        ("activation_offloading", True, "planned is that it stays on the GPU"),
        ("use_cache", True, "planned without a cache of keys and values"),
        ("use_cache", False, ""),
        ("padding_free", True, "planned with rows of the whole length"),
        ("debug", "underflow_overflow", "planned without its hooks"),
    ],
)
def test_of_trl_what_changes_memory_or_time_is_said(key, value, said):
    lines = [line for line in _converted({**_SFT, key: value}).approximated if line.startswith(key)]
    assert len(lines) == bool(said)
    assert not said or said in lines[0]


def test_packed_rows_are_full_and_others_as_long_as_the_longest():
    assert "packing: true: rows are full, as planned" in _converted({**_SFT, "packing": True}).notes
    loose = _converted({**_SFT, "packing": False})
    assert any(line.startswith("packing: rows are as long as the samples") for line in loose.notes)
    assert "packing" not in loose.passed_over


_UNSLOTH = {
    "model": "unsloth/Llama-3.2-1B",
    "training": {"batch_size": 2, "max_seq_length": 1024, "train_on_completions": False},
    "lora": {"lora_r": 16},
}


def test_of_unsloth_what_changes_memory_or_time_is_said():
    assert "eval.batch" not in _settings(_UNSLOTH)
    evaluated = {**_UNSLOTH, "training": {**_UNSLOTH["training"], "eval_steps": 0.1, "packing": True}}
    assert _settings(evaluated)["eval.batch"] == "2"
    assert "training.packing: true: rows are full, as planned" in _converted(evaluated).notes
    with pytest.raises(InputError, match="use_loftq: true with a base of 4 bits"):
        _converted({**_UNSLOTH, "lora": {"lora_r": 16, "use_loftq": True}})


_V1 = {"model": "a/b", "train_dataset": "d.yaml", "dist_config": {"name": "fsdp2"}, "micro_batch_size": 1}


def test_of_llama_factory_v1_what_changes_memory_or_time_is_said():
    assert _converted({**_V1, "mp_shard_size": 4}).processes == 4
    with pytest.raises(InputError, match="mp_shard_size and dp_size"):
        _converted({**_V1, "mp_shard_size": 4, "dp_size": 8})
    saved = _converted({**_V1, "save_ckpt_as_hf": True, "init_config": {"name": "init_on_meta"}})
    assert any(line.startswith("save_ckpt_as_hf") for line in saved.approximated)
    assert not saved.not_understood


def test_deepspeed_times_and_profiles_are_said():
    content = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "round_robin_gradients": True}}
    timed = _converted({**content, "wall_clock_breakdown": True, "flops_profiler": {"enabled": True}})
    assert any("wall_clock_breakdown" in line for line in timed.approximated)
    assert any("flops_profiler.enabled" in line for line in timed.approximated)
    assert not any("round_robin" in line for line in timed.approximated)
    away = {"stage": 2, "round_robin_gradients": True, "offload_optimizer": {"device": "cpu"}}
    assert any("round_robin" in line for line in _converted({**content, "zero_optimization": away}).approximated)
    assert not _converted({**content, "wall_clock_breakdown": False}).approximated


def test_litgpt_evaluates_by_micro_batches():
    content = {
        "checkpoint_dir": "checkpoints/a/b",
        "lora_r": 8,
        "train": {"micro_batch_size": 2, "max_seq_length": 512},
    }
    assert _settings({**content, "precision": "bf16-true", "data": {"class_path": "x"}})["eval.batch"] == "2"


@pytest.mark.parametrize(
    "key",
    [
        "data.batch_size", "dataset.max_seq_len", "experimental.custom_import", "fp8_config.opt_level",
        "debug.batch_invariant", "comm.mode", "checkpoint.async_mode", "eval_sequence_len", "dataset.packed",
    ],
)  # fmt: skip
def test_a_table_of_harmless_words_may_hold_others(key):
    assert not harmless(key)


@pytest.mark.parametrize("key", ["fp8_config.fp8_amax_history_length", "debug.seed", "data.num_workers", "comm.trace"])
def test_words_of_such_tables_that_are_harmless(key):
    assert harmless(key)
