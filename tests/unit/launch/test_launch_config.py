"""Configuration files of every strategy: keys, values, and what must not stand together."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from gpu_plan.executor import names
from gpu_plan.executor.launch.accelerate.config import accelerate_config
from gpu_plan.executor.launch.accelerate.keys import check_config
from gpu_plan.executor.launch.deepspeed.config import deepspeed_config
from gpu_plan.executor.launch.engines.registry import ENGINES, find_engine
from gpu_plan.executor.launch.target import Target
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.plan.saved import saved_from_json, saved_to_json
from tests.support.launch_plans import STAGES, saved


def target(strategy: str = "fsdp", gpus: str = "8xH100", loop: str = "accelerate", **more: object) -> Target:
    own = {key: more.pop(key) for key in ("hosts", "machine_rank", "port", "script_checkpoints") if key in more}
    plan = saved(strategy, gpus, **more)  # type: ignore[arg-type]
    return Target(saved=plan, script=Path("train.py"), loop=loop, folder=Path("/run"), **own)  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", STAGES)
@pytest.mark.parametrize("gpus", ["8xH100", "2xcpu"])
def test_every_configuration_is_one_that_accelerate_reads_whole(strategy: str, gpus: str) -> None:
    gpus = {"8xH100": "1xH100", "2xcpu": "1xcpu"}[gpus] if strategy == "single" else gpus
    config = accelerate_config(target(strategy, gpus))
    check_config(config)
    assert yaml.safe_load(yaml.safe_dump(config)) == config
    assert config["num_processes"] == target(strategy, gpus).world_size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gradient_accumulation_steps": 2}, "no key 'gradient_accumulation_steps'"),
        ({"mixed_precison": "bf16"}, "Did you mean mixed_precision"),
        ({"fsdp_config": {"fsdp_reshard_after_foward": True}}, "passes over fsdp_config.fsdp_reshard_after_foward"),
        ({"parallelism_config": {"dp_shard_size": 2}}, "Did you mean parallelism_config_dp_shard_size"),
        ({"deepspeed_config": {"deepspeed_config_file": "x", "zero_stage": 2}}, "zero_stage belong in the DeepSpeed"),
        ({"deepspeed_config": {"deepspeed_config_file": "x"}, "mixed_precision": "bf16"}, "mixed_precision belong"),
        ({"mpirun_config": {"mpirun_ccl": "1"}}, "not one that launch files use"),
    ],
)
def test_what_accelerate_would_drop_or_refuse_is_a_value_error(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_config({"distributed_type": "FSDP", **change})


def test_a_setting_that_the_search_chose_is_written_unless_another_was_given() -> None:
    for given, written in (({}, False), ({"fsdp.reshard_after_forward": "true"}, True)):
        found = target("fsdp", settings=given)
        plan = replace(found.saved.plan, chosen={"fsdp.reshard_after_forward": "false"})
        config = accelerate_config(replace(found, saved=replace(found.saved, plan=plan)))
        assert config["fsdp_config"]["fsdp_reshard_after_forward"] is written  # type: ignore[index]


def swapping(settings: dict[str, str], chosen: dict[str, str]) -> dict[str, object]:
    """DeepSpeed's table of a plan with swap files."""
    found = target("zero3", offload="nvme", settings=settings)
    plan = replace(found.saved.plan, chosen=chosen)
    zero = deepspeed_config(replace(found, saved=replace(found.saved, plan=plan)))["zero_optimization"]
    assert isinstance(zero, dict)
    return zero


def test_swap_files_are_where_they_are_asked_for_in_as_many_buffers_as_were_chosen() -> None:
    zero = swapping({"zero.nvme_path": "/Disk"}, {"zero.param_buffer_count": "17", "zero.prefetch_bucket_size": "0"})
    common = {"device": "nvme", "nvme_path": "/Disk", "pin_memory": True}
    assert zero["offload_optimizer"] == {**common, "buffer_count": 4}
    sizes = {"buffer_count": 17, "buffer_size": 100_000_000, "max_in_cpu": 1_000_000_000}
    assert zero["offload_param"] == {**common, **sizes}
    assert zero["stage3_prefetch_bucket_size"] == 0
    given = swapping({"zero.param_buffer_count": "9"}, {"zero.param_buffer_count": "17"})
    assert given["offload_param"]["buffer_count"] == 9  # type: ignore[index]
    assert given["offload_param"]["nvme_path"] == "./nvme"  # type: ignore[index]
    assert "offload_param" not in swapping({"zero.offload_param": "none"}, {})
    kept = swapping({"zero.offload_param": "cpu"}, {})
    assert kept["offload_param"] == {"device": "cpu", "pin_memory": True}


def test_processes_on_a_cpu_are_joined_as_gpus_are() -> None:
    """MULTI_CPU starts a single process, and use_cpu would make the launcher start one."""
    config = accelerate_config(target("ddp", "2xcpu"))
    assert (config["distributed_type"], config["use_cpu"]) == ("MULTI_GPU", False)
    alone = accelerate_config(target("single", "1xcpu"))
    assert (alone["distributed_type"], alone["use_cpu"]) == ("NO", True)


def test_fsdp1_on_a_cpu_asks_for_no_device() -> None:
    fsdp = accelerate_config(target("fsdp1", "2xcpu"))["fsdp_config"]
    assert isinstance(fsdp, dict)
    assert (fsdp["fsdp_sync_module_states"], fsdp["fsdp_cpu_ram_efficient_loading"]) == (False, False)


def test_hsdp_replicates_over_nodes_unless_told_otherwise() -> None:
    hosts = ("a", "b")
    config = accelerate_config(target("hsdp", "2x8xH100", hosts=hosts))["parallelism_config"]
    assert isinstance(config, dict)
    assert config["parallelism_config_dp_replicate_size"] == 2
    assert config["parallelism_config_dp_shard_size"] == 8
    config = accelerate_config(target("hsdp", "2x8xH100", hosts=hosts, dp_replicate=4))["parallelism_config"]
    assert isinstance(config, dict)
    assert config["parallelism_config_dp_shard_size"] == 4


def test_several_nodes_meet_at_the_first_host_by_the_elastic_store() -> None:
    config = accelerate_config(target("zero2", "2x8xH100", hosts=("head:29511", "b"), machine_rank=1))
    assert config["rdzv_backend"] == "c10d"
    assert (config["main_process_ip"], config["main_process_port"]) == ("head", 29511)
    assert (config["num_machines"], config["machine_rank"], config["same_network"]) == (2, 1, False)
    assert config["deepspeed_config"]["deepspeed_multinode_launcher"] == "standard"  # type: ignore[index]
    plain = accelerate_config(target("ddp", "2x8xH100", hosts=("head", "b"), port=30000))
    assert plain["main_process_port"] == 30000


def test_the_launcher_checkpoints_only_where_nobody_else_does() -> None:
    def flag(**more: object) -> object:
        config = accelerate_config(target("fsdp", checkpointing="full", **more))["fsdp_config"]
        assert isinstance(config, dict)
        return config["fsdp_activation_checkpointing"]

    assert flag() is True
    assert flag(loop="trainer") is False
    assert flag(script_checkpoints=True) is False
    assert flag(settings={"checkpoint.every": "2"}) is False


def test_fp8_goes_through_torchao() -> None:
    config = accelerate_config(target("fsdp", precision="fp8-mixed"))
    assert config["mixed_precision"] == "fp8"
    assert config["fp8_config"] == {"fp8_backend": "AO", "fp8_enable_fsdp_float8_all_gather": True}
    assert config["fsdp_config"]["fsdp_cpu_ram_efficient_loading"] is False
    other = target("fsdp", precision="fp8-mixed", settings={"fp8.backend": "te"})
    assert accelerate_config(other)["fp8_config"] == {"fp8_backend": "TE"}
    assert deepspeed_config(target("zero2", precision="fp8-mixed"))["bf16"] == {"enabled": True}


def test_the_compiler_is_accelerates() -> None:
    assert "dynamo_config" not in accelerate_config(target())
    settings = {"compile.backend": "inductor", "compile.mode": "max-autotune", "compile.regional": "true"}
    config = accelerate_config(target("zero2", settings=settings))
    check_config(config)
    assert config["dynamo_config"] == {
        "dynamo_backend": "INDUCTOR",
        "dynamo_mode": "max-autotune",
        "dynamo_use_fullgraph": False,
        "dynamo_use_dynamic": False,
        "dynamo_use_regional_compilation": True,
    }


def test_zero_settings_reach_the_file() -> None:
    settings = {
        "zero.reduce_bucket_size": "1000",
        "zero.prefetch_bucket_size": "2000",
        "zero.param_persistence_threshold": "0",
        "zero.overlap_comm": "false",
        "zero.pin_memory": "false",
    }
    config = deepspeed_config(target("zero3", offload="all", settings=settings))
    zero = config["zero_optimization"]
    assert isinstance(zero, dict)
    assert zero["reduce_bucket_size"] == 1000
    assert zero["stage3_prefetch_bucket_size"] == 2000
    assert zero["stage3_param_persistence_threshold"] == 0
    assert zero["overlap_comm"] is False
    assert zero["offload_optimizer"] == {"device": "cpu", "pin_memory": False}
    assert zero["offload_param"] == {"device": "cpu", "pin_memory": False}
    assert config["train_batch_size"] == 4 * 2 * 8
    assert config["bf16"] == {"enabled": True}
    assert config["fp16"] == {"enabled": False}
    assert config["gradient_clipping"] == 0.0


def test_a_trainer_fills_in_its_own_values() -> None:
    config = deepspeed_config(target("zero3", loop="trainer", settings={"zero.reduce_bucket_size": "1000"}))
    zero = config["zero_optimization"]
    assert isinstance(zero, dict)
    for key in ("train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps"):
        assert config[key] == "auto"
    assert config["gradient_clipping"] == "auto"
    assert config["bf16"] == config["fp16"] == {"enabled": "auto"}
    assert zero["reduce_bucket_size"] == 1000, "what was asked for is not left to the Trainer"
    assert zero["stage3_prefetch_bucket_size"] == "auto"


def test_stages_below_three_have_no_keys_of_stage_three() -> None:
    for strategy in ("zero1", "zero2"):
        zero = deepspeed_config(target(strategy))["zero_optimization"]
        assert isinstance(zero, dict)
        assert not [key for key in zero if key.startswith("stage3")]


def test_no_compiler_is_needed_on_a_cpu() -> None:
    assert deepspeed_config(target("zero2", "2xcpu", offload="optimizer"))["zero_force_ds_cpu_optimizer"] is False
    assert "zero_force_ds_cpu_optimizer" not in deepspeed_config(target("zero2", offload="optimizer"))


def test_engines_are_found_by_name() -> None:
    assert set(ENGINES) == {"accelerate", "deepspeed", "torchrun"}
    for name in ENGINES:
        assert callable(find_engine(name))
    with pytest.raises(UsageError, match="Did you mean torchrun"):
        find_engine("torchun")


def test_deepspeed_launches_zero_alone() -> None:
    with pytest.raises(UsageError, match="this plan is fsdp"):
        find_engine("deepspeed")(target("fsdp"))
    launch = find_engine("deepspeed")(target("zero2", "2x8xH100", hosts=("a:1", "b")))
    assert launch.files["hostfile"] == "a slots=8\nb slots=8\n"
    assert "ACCELERATE_USE_DEEPSPEED=true\n" in launch.files["deepspeed.env"]
    assert launch.environment["DS_ENV_FILE"] == "/run/deepspeed.env"


def test_headers_say_what_made_the_files() -> None:
    drawn = Target(
        saved=saved(), script=Path("train.py"), folder=Path("/run"), made_by="plan x\n--execute train.py -- --lr 1"
    )
    launch = find_engine("accelerate")(drawn)
    header = "# Made by: plan x --execute train.py -- --lr 1"
    assert launch.files[names.ACCELERATE_FILE].startswith(header + "\n")
    assert header in launch.files[names.COMMAND_FILE].splitlines()


def test_a_plan_saved_before_units_were_kept_is_read_and_launched() -> None:
    plan = saved("fsdp")
    document = json.loads(saved_to_json(plan))
    del document["plan"]["units"]
    older = saved_from_json(json.dumps(document), "old.json")
    assert older.digest == plan.digest
    wrap = accelerate_config(Target(saved=older, script=Path("train.py"), folder=Path("/run")))["fsdp_config"]
    assert isinstance(wrap, dict)
    assert wrap["fsdp_auto_wrap_policy"] == "TRANSFORMER_BASED_WRAP"
    assert "fsdp_transformer_layer_cls_to_wrap" not in wrap, "Accelerate then asks the model itself"
    assert saved_from_json(saved_to_json(plan), "new.json").plan.units == ("LlamaDecoderLayer",)
