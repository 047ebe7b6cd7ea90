"""Plans whose model several ranks compute together: what is launched, what ranks are told, what is refused."""

import json
from pathlib import Path

import pytest
import yaml

from gpu_plan.executor.checkpoints.find import Checkpoint
from gpu_plan.executor.checkpoints.manifest import SPREAD, Manifest
from gpu_plan.executor.checkpoints.resume import decide_resume
from gpu_plan.executor.launch.engines.registry import find_engine
from gpu_plan.executor.launch.export import export
from gpu_plan.executor.launch.prepare import Drawn, draw
from gpu_plan.executor.names import ACCELERATE_FILE
from gpu_plan.executor.runner.options import read_options
from gpu_plan.executor.runner.parallel.checkpoints import fitted
from gpu_plan.executor.runner.parallel.degrees import VARIABLE, Degrees, read_degrees
from gpu_plan.executor.script.read import read_script
from gpu_plan.executor.supervise.ladder.planner_process import asked_again
from gpu_plan.planner.errors import UsageError
from tests.support.launch_plans import job, saved

ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(gradient_accumulation_steps=2)
for batch in accelerator.prepare(loader):
    with accelerator.accumulate(model):
        accelerator.backward(model(**batch).loss)
"""
PLAIN = """
from torch.utils.data import DataLoader{sampler}
for batch in DataLoader(data, batch_size=4{given}):
    model(**batch).loss.backward()
    optimizer.step()
"""
ALONE = PLAIN.format(sampler="", given="")
SHARED = PLAIN.format(sampler=", DistributedSampler", given=", sampler=DistributedSampler(data)")
WRAPPED = f"from torch.nn.parallel import DistributedDataParallel\nmodel = DistributedDataParallel(model)\n{SHARED}"


def drawn(folder: Path, text: str, strategy: str, *, observed: bool = True, steps: int = 2, **settings: str) -> Drawn:
    script = folder / "train.py"
    script.write_text(text)
    given = {name.replace("__", "."): value for name, value in settings.items()}
    degree = 8 if strategy == "tp" else 2
    made = saved(strategy, "8xH100", tensor_parallel=degree, steps=steps, settings=given)
    return draw(job(made, script), read_script(script), folder=folder, observed=observed)


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        ("tp", Degrees(tp_size=8)),
        ("fsdp_tp", Degrees(tp_size=2, fsdp_size=4, fsdp_mixed_precision=True)),
    ],
)
def test_ranks_are_told_the_degrees(tmp_path: Path, strategy: str, wanted: Degrees) -> None:
    target = drawn(tmp_path, ACCELERATE, strategy).target
    assert target.spreads_model
    assert read_degrees(target.environment) == wanted
    launch = find_engine("torchrun")(target)
    assert launch.command[0] == "torchrun"
    told = {name: launch.environment[f"PARALLELISM_CONFIG_{name}_SIZE"] for name in ("TP", "DP_SHARD", "DP_REPLICATE")}
    assert told == {"TP": str(wanted.tp_size), "DP_SHARD": str(wanted.fsdp_size), "DP_REPLICATE": "1"}
    assert "ACCELERATE_USE_FSDP" not in launch.environment, "Accelerate's own FSDP2 would shard what is sharded"


def test_tensor_parallel_alone_goes_by_the_file_of_accelerate_launch(tmp_path: Path) -> None:
    found = drawn(tmp_path, ACCELERATE, "tp")
    launch = find_engine("accelerate")(found.target)
    spread = yaml.safe_load(launch.files[ACCELERATE_FILE])["parallelism_config"]
    assert spread["parallelism_config_tp_size"] == 8
    assert spread["parallelism_config_dp_shard_size"] == 1
    assert any("accelerate launch starts the ranks" in note for note in found.notes)
    assert any("torchrun starts the ranks" in note for note in drawn(tmp_path, ACCELERATE, "fsdp_tp").notes)


def test_ranks_of_a_group_are_neighbours() -> None:
    degrees = Degrees(tp_size=2, fsdp_size=3)
    assert degrees.world_size == 6
    assert [degrees.group_of(rank) for rank in range(6)] == [0, 0, 1, 1, 2, 2]
    assert read_degrees({}) is None
    with pytest.raises(ValueError, match="no JSON object"):
        read_degrees({VARIABLE: "[2]"})
    assert read_degrees({VARIABLE: json.dumps(degrees.fields())}) == degrees


@pytest.mark.parametrize("engine", ["accelerate", "deepspeed"])
def test_other_launchers_are_refused_by_name(tmp_path: Path, engine: str) -> None:
    with pytest.raises(
        UsageError, match=r"--to (accelerate cannot start FSDP2 × TP.*--to torchrun|deepspeed runs ZeRO)"
    ):
        find_engine(engine)(drawn(tmp_path, ACCELERATE, "fsdp_tp").target)


@pytest.mark.parametrize(
    ("text", "strategy", "refused"),
    [
        (ALONE, "tp", None),
        (SHARED, "fsdp_tp", None),
        (ALONE, "fsdp_tp", "shares its samples out to nobody: all 4 groups of ranks would train on the same ones"),
        (WRAPPED, "tp", "wraps its model in DistributedDataParallel, which is not for one that --tp spreads"),
    ],
)
def test_plain_loops_that_would_train_otherwise_are_refused(
    tmp_path: Path, text: str, strategy: str, refused: str | None
) -> None:
    found = drawn(tmp_path, text, strategy, steps=1).refused
    assert not found if refused is None else any(refused in line for line in found), found


def test_exported_files_bring_what_spreads_the_model(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(ACCELERATE)
    made = saved("fsdp_tp", "8xH100", tensor_parallel=2)
    launch = export(job(made, script), read_script(script), engine="torchrun", folder=tmp_path / "out")
    modules = {name.removesuffix(".py") for name in launch.files if name.endswith(".py")}
    for name, text in launch.files.items():
        assert "from gpu_plan" not in text, name
        beside = [line.split()[1] for line in text.splitlines() if line.startswith(("from spread_", "from post_"))]
        assert set(beside) <= modules, name
    assert str(tmp_path / "out" / "start_rank.py") in launch.command


@pytest.mark.parametrize(
    ("strategy", "refused"),
    [("fsdp_tp", None), ("single", None), ("ddp", None), ("fsdp", "tp shards are not read by fsdp")],
)
def test_other_degrees_read_a_checkpoint(strategy: str, refused: str | None) -> None:
    manifest = Manifest(step=3, stack="accelerate", layout=SPREAD, strategy="tp", world_size=2, created=0.0)
    found = decide_resume(Checkpoint(path=Path("/saved/3"), manifest=manifest), strategy, 4)
    assert (found.refused, found.conversion) == (refused, None)


def test_what_transformers_decides_itself_is_said(tmp_path: Path) -> None:
    found = drawn(tmp_path, ACCELERATE, "fsdp_tp", fsdp__reshard_after_forward="false").not_applied
    assert any("as the class's plan says" in line for line in found), found
    assert not drawn(tmp_path, ACCELERATE, "fsdp_tp", fsdp__reshard_after_forward="true").not_applied


def test_the_ladder_keeps_the_degree(tmp_path: Path) -> None:
    """Out of memory, the same job is planned again with a smaller micro batch."""
    script = tmp_path / "train.py"
    script.write_text(ACCELERATE)
    made = saved("fsdp_tp", "8xH100", tensor_parallel=2)
    assert asked_again(job(made, script), made.plan.strategy).options["tp"] == "2"
    assert "tp" not in asked_again(job(saved("ddp"), script), saved("ddp").plan.strategy).options


def test_a_batch_that_ranks_share_is_counted_once() -> None:
    told = {VARIABLE: json.dumps(Degrees(tp_size=2, fsdp_size=2).fields())}
    assert [read_options({**told, "RANK": str(rank)}).counts_samples for rank in range(4)] == [True, False, True, False]
    assert read_options({"RANK": "1"}).counts_samples
    assert read_options({VARIABLE: "{", "RANK": "1"}).counts_samples, "options never raise"


def test_a_schedule_fits_other_groups() -> None:
    """Two meshes are two groups; one process has one."""
    saved_state = {"last_epoch": 3, "base_lrs": [0.1, 0.1], "_last_lr": [0.05, 0.05], "lr_lambdas": [None, None]}
    assert fitted(saved_state, 2) == saved_state
    assert fitted(saved_state, 1) == {"last_epoch": 3, "lr_lambdas": [None]}
    assert fitted({"last_epoch": 3, "base_lrs": [0.1]}, 2) == {"last_epoch": 3}
