"""What Accelerate itself makes of the launch files: its parser, its validation, the environment that it gives to ranks.

Nothing is started. Accelerate passes over nested keys that it does not know, so what was meant is looked for at the
far end: in the variables of the ranks, and in the plugins that are made from those.
"""

import math
import os
from pathlib import Path

import pytest

from gpu_plan.executor.job import Job
from gpu_plan.executor.launch.accelerate.config import accelerate_config
from gpu_plan.executor.launch.accelerate.environment import accelerate_environment
from gpu_plan.executor.launch.engines.registry import find_engine
from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.launch.prepare import draw, prepare
from gpu_plan.executor.launch.write import write_launch_files
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.executor.script.read import read_script
from gpu_plan.planner.strategy.registry import strategies
from tests.support.launch_plans import STAGES, job, saved

SCRIPT = "from accelerate import Accelerator\na = Accelerator()\nwith a.accumulate():\n    pass\n"
LAUNCHED = [name for name in STAGES if not strategies()[name].traits.tensor_parallel]
"""What spreads one copy of the model over ranks goes by torchrun (test_launch_spread)."""
CASES = [
    *((name, "2xcpu", {}) for name in LAUNCHED if name not in ("single", "hsdp")),
    *((name, "8xH100", {}) for name in LAUNCHED if name not in ("single", "fsdp1")),
    ("single", "1xcpu", {}),
    ("single", "1xH100", {}),
    ("ddp", "8xH100", {"precision": "fp8-mixed"}),
    ("fsdp", "8xH100", {"offload": "all", "checkpointing": "full"}),
    ("fsdp", "2x8xH100", {"settings": {"fsdp.reshard_after_forward": "false"}}),
    ("hsdp", "2x8xH100", {"precision": "fp16-mixed"}),
    ("zero2", "2x8xH100", {"offload": "optimizer"}),
    ("zero3", "8xH100", {"offload": "all", "stack": "trainer"}),
    ("zero2", "8xH100", {"precision": "fp8-mixed"}),
    ("fsdp", "2xcpu", {"precision": "fp8-mixed"}),
    ("ddp", "8xH100", {"settings": {"compile.backend": "inductor", "compile.regional": "true"}}),
]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "MASTER_")):
            monkeypatch.delenv(name)
    # Where the launcher's checks look for GPUs, there are none.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def written(strategy: str, gpus: str, more: dict, folder: Path, text: str = SCRIPT) -> tuple[Job, LaunchFiles]:
    script = folder / "train.py"
    script.write_text(text)
    plan = saved(strategy, gpus, **more)
    hosts = ("127.0.0.1", "127.0.0.1") if plan.cluster["nodes"] == 2 else ()
    # On the second machine no port is looked for.
    made = job(plan, script, hosts=hosts, machine_rank=1 if hosts else 0)
    launch = prepare(made, attempt=1, folder=RunFolder(folder / "run"), resume_from=None)
    write_launch_files(launch, folder / "run")
    return made, launch


def parsed(launch: LaunchFiles, monkeypatch: pytest.MonkeyPatch) -> tuple[object, dict[str, str]]:
    """Accelerate's arguments after its own validation, and the environment that its launcher would give to ranks."""
    from accelerate.commands import launch as accelerate
    from accelerate.utils import launch as utils

    for name, value in launch.environment.items():
        monkeypatch.setenv(name, value)
    at = launch.command.index("--config_file")
    args = accelerate.launch_command_parser().parse_args(list(launch.command[at:]))
    args, defaults, from_config = accelerate._validate_launch_command(args)
    if args.use_deepspeed:
        fields = [*defaults.deepspeed_config, *(["mixed_precision"] if from_config else [])]
        args.deepspeed_fields_from_accelerate_config = ",".join(fields)
        return args, utils.prepare_deepspeed_cmd_env(args)[1]
    if args.multi_gpu or args.use_fsdp:
        return args, utils.prepare_multi_gpu_env(args)
    return args, utils.prepare_simple_launcher_cmd_env(args)[1]


@pytest.mark.parametrize(("strategy", "gpus", "more"), CASES)
def test_accelerate_understands_what_was_meant(
    strategy: str, gpus: str, more: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, launch = written(strategy, gpus, more, tmp_path)
    args, env = parsed(launch, monkeypatch)
    choice = made.saved.plan.strategy
    assert args.num_processes == choice.world_size
    assert args.cpu is False, "with --cpu the launcher starts a single process"
    assert args.use_fsdp is (strategy in ("fsdp", "fsdp1", "hsdp"))
    assert args.use_deepspeed is strategy.startswith("zero")
    assert args.multi_gpu is (strategy == "ddp")
    assert args.training_script == "gpu_plan.executor.runner"
    assert args.module
    if strategy != "single":
        assert int(args.nproc_per_node) * args.num_machines == choice.world_size
        assert args.log_dir.endswith("run/logs")
        assert args.tee == "3"
    if args.num_machines > 1:
        assert (args.rdzv_backend, args.rdzv_endpoint) == ("c10d", "127.0.0.1:29500")
    if not strategy.startswith("zero"):
        expected = {"bf16-mixed": "bf16", "fp16-mixed": "fp16", "fp8-mixed": "fp8"}[choice.precision]
        assert env["ACCELERATE_MIXED_PRECISION"] == expected
        assert env["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == "2"
    if choice.precision == "fp8-mixed":
        assert env["ACCELERATE_FP8_BACKEND"] == "AO"
    if "compile.backend" in more.get("settings", {}):
        assert env["ACCELERATE_DYNAMO_BACKEND"] == "INDUCTOR"
        assert env["ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION"] == "True"


@pytest.mark.parametrize(("strategy", "gpus", "more"), CASES)
def test_torchrun_gets_the_same_variables(
    strategy: str, gpus: str, more: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the torchrun engine sets is what Accelerate's launcher would; what that adds are its own defaults."""
    made, launch = written(strategy, gpus, more, tmp_path)
    theirs = parsed(launch, monkeypatch)[1]
    drawn = draw(made, read_script(made.script), folder=tmp_path / "run")
    ours = accelerate_environment(accelerate_config(drawn.target))
    if strategy == "zero3" and more.get("stack") == "trainer":
        assert drawn.target.loop == "accelerate", "the script says who runs the loop, not the plan"
    assert {name: theirs.get(name) for name in ours} == ours
    prefixes = ("ACCELERATE_USE_", "FSDP_", "PARALLELISM_CONFIG_", "ACCELERATE_FP8", "ACCELERATE_DEEPSPEED")
    extra = {name for name in theirs if name.startswith(prefixes)} - set(ours) - set(launch.environment)
    defaults = {
        "ACCELERATE_USE_CPU",
        "FSDP_SHARDING_STRATEGY", "FSDP_RESHARD_AFTER_FORWARD", "FSDP_MIN_NUM_PARAMS", "FSDP_BACKWARD_PREFETCH",
        "FSDP_FORWARD_PREFETCH", "FSDP_USE_ORIG_PARAMS", "FSDP_SYNC_MODULE_STATES",
        "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD",
        "PARALLELISM_CONFIG_CP_BACKEND", "PARALLELISM_CONFIG_SP_SIZE", "PARALLELISM_CONFIG_SP_BACKEND",
        *(name for name in theirs if name.startswith("ACCELERATE_FP8")),
    }  # fmt: skip
    assert extra <= defaults


@pytest.mark.parametrize(("strategy", "gpus", "more"), [case for case in CASES if "fsdp" in case[0]])
def test_the_fsdp_plugin_that_a_rank_makes(
    strategy: str, gpus: str, more: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelerate.utils import FullyShardedDataParallelPlugin

    made, launch = written(strategy, gpus, more, tmp_path)
    for name, value in parsed(launch, monkeypatch)[1].items():
        monkeypatch.setenv(name, value)
    plugin = FullyShardedDataParallelPlugin()
    choice = made.saved.plan.strategy
    assert plugin.fsdp_version == (1 if strategy == "fsdp1" else 2)
    assert plugin.transformer_cls_names_to_wrap == ["LlamaDecoderLayer"]
    assert plugin.activation_checkpointing is (choice.checkpointing == "full")
    if strategy == "fsdp1":
        assert plugin.sharding_strategy.name == "FULL_SHARD"
        assert plugin.use_orig_params is True
        assert plugin.backward_prefetch.name == "BACKWARD_PRE"
        return
    settings = more.get("settings", {})
    assert plugin.reshard_after_forward is (settings.get("fsdp.reshard_after_forward", "true") == "true")
    assert (type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy") is (choice.offload == "all")


def test_the_mesh_of_hsdp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.parallelism_config import ParallelismConfig

    _, launch = written("hsdp", "2x8xH100", {}, tmp_path)
    for name, value in parsed(launch, monkeypatch)[1].items():
        monkeypatch.setenv(name, value)
    mesh = ParallelismConfig()
    assert (mesh.dp_replicate_size, mesh.dp_shard_size, mesh.tp_size, mesh.cp_size) == (2, 8, 1, 1)


@pytest.mark.parametrize(
    ("strategy", "gpus", "sizes", "handler"),
    [
        ("fsdp", "8xH100", (1, 2, 1, 4, 1), ("cp_handler", "cp_comm_strategy", "alltoall")),
        ("hsdp", "2x8xH100", (2, 2, 1, 4, 1), ("cp_handler", "cp_comm_strategy", "alltoall")),
        ("zero3", "8xH100", (1, 1, 1, 1, 4), ("sp_handler", "sp_attn_implementation", "sdpa")),
    ],
)
def test_ranks_that_share_samples(
    strategy: str,
    gpus: str,
    sizes: tuple[int, ...],
    handler: tuple[str, str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from accelerate.parallelism_config import ParallelismConfig

    rotation = {} if strategy == "zero3" else {"cp.rotation": "alltoall"}
    text = f"{SCRIPT}\naccelerator.maybe_context_parallel(buffers=[])\n"
    _, launch = written(strategy, gpus, {"context_parallel": 4, "settings": rotation}, tmp_path, text)
    for name, value in parsed(launch, monkeypatch)[1].items():
        monkeypatch.setenv(name, value)
    made = ParallelismConfig()
    assert (made.dp_replicate_size, made.dp_shard_size, made.tp_size, made.cp_size, made.sp_size) == sizes
    where, field, value = handler
    assert getattr(getattr(made, where), field) == value


@pytest.mark.parametrize(("strategy", "gpus", "more"), [case for case in CASES if case[0].startswith("zero")])
def test_the_deepspeed_plugin_that_a_rank_makes(
    strategy: str, gpus: str, more: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("deepspeed")
    from accelerate.utils import DeepSpeedPlugin

    made, launch = written(strategy, gpus, more, tmp_path)
    for name, value in parsed(launch, monkeypatch)[1].items():
        monkeypatch.setenv(name, value)
    plugin = DeepSpeedPlugin()
    plugin.set_mixed_precision("no")
    choice = made.saved.plan.strategy
    assert plugin.zero_stage == choice.zero_stage
    assert plugin.gradient_accumulation_steps == 2
    assert plugin.deepspeed_config["train_micro_batch_size_per_gpu"] == 4
    assert plugin.gradient_clipping == 0.0, "nobody asked for any"
    assert plugin.zero3_init_flag is (choice.zero_stage == 3)
    offloaded = {"none": ("none", "none"), "optimizer": ("cpu", "none"), "all": ("cpu", "cpu")}[choice.offload]
    assert (plugin.offload_optimizer_device, plugin.offload_param_device) == offloaded
    assert plugin.deepspeed_config["bf16"]["enabled"] is True
    assert plugin.deepspeed_config["fp16"]["enabled"] is False


def test_the_deepspeed_file_is_one_that_deepspeed_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own strict model of the ZeRO section takes every key."""
    deepspeed = pytest.importorskip("deepspeed.runtime.zero.config")
    for strategy in ("zero1", "zero2", "zero3"):
        made, _ = written(strategy, "8xH100", {"offload": "all" if strategy == "zero3" else "optimizer"}, tmp_path)
        drawn = draw(made, read_script(made.script), folder=tmp_path)
        from gpu_plan.executor.launch.deepspeed.config import deepspeed_config

        section = deepspeed_config(drawn.target)["zero_optimization"]
        read = deepspeed.DeepSpeedZeroConfig(**section)
        for name in ("reduce_bucket_size", "overlap_comm"):
            assert getattr(read, name) == section[name]
        known = {field for field in type(read).model_fields} | {
            info.alias for info in type(read).model_fields.values() if info.alias
        }
        assert set(section) <= known


def test_torchrun_reads_the_command(tmp_path: Path) -> None:
    from torch.distributed.run import get_args_parser

    made, _ = written("ddp", "2x8xH100", {}, tmp_path)
    drawn = draw(made, read_script(made.script), folder=tmp_path)
    launch = find_engine("torchrun")(drawn.target)
    args = get_args_parser().parse_args(list(launch.command[1:]))
    assert (args.nnodes, args.nproc_per_node, args.rdzv_backend) == ("2", "8", "c10d")
    assert args.rdzv_endpoint == "127.0.0.1:29500"
    assert args.training_script == "gpu_plan.executor.runner"


@pytest.mark.parametrize(("word", "written"), [("inf", math.inf), ("0.5", 0.5), ("0", None), (None, "auto")])
def test_what_the_printed_command_says_of_clipping(
    word: str | None, written: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 0 is left out and auto becomes 1.0: DeepSpeed then clips to 1.0. Only an endless norm means none."""
    constants = pytest.importorskip("deepspeed.runtime.constants")
    from accelerate.utils import DeepSpeedPlugin

    monkeypatch.delenv("ACCELERATE_DEEPSPEED_CONFIG_FILE", raising=False)
    if word is None:
        monkeypatch.delenv("ACCELERATE_GRADIENT_CLIPPING", raising=False)
    else:
        monkeypatch.setenv("ACCELERATE_GRADIENT_CLIPPING", word)
    assert DeepSpeedPlugin(zero_stage=2).deepspeed_config.get("gradient_clipping") == written
    assert constants.GRADIENT_CLIPPING_DEFAULT == 1.0
