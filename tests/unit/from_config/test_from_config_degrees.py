"""Degrees of context, sequence and tensor parallel, and batches of all ranks, in other tools' files."""

from pathlib import Path

import pytest

from tests.support.configuration_files import words

RING = """
distributed_type: FSDP
num_processes: 8
fsdp_config: {fsdp_version: 2, fsdp_activation_checkpointing: true, fsdp_activation_checkpointing_offload: true}
parallelism_config:
  parallelism_config_dp_shard_size: 2
  parallelism_config_cp_size: 4
  parallelism_config_cp_comm_strategy: alltoall
"""
ULYSSES = """
distributed_type: DEEPSPEED
num_processes: 8
deepspeed_config: {zero_stage: 3}
parallelism_config:
  parallelism_config_sp_size: 8
  parallelism_config_sp_backend: deepspeed
  parallelism_config_sp_attn_implementation: flash_attention_2
"""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (RING, ("--strategy fsdp", "--cp 4", "--set cp.rotation=alltoall", "--set checkpoint.offload=true")),
        (ULYSSES, ("--strategy zero3", "--cp 8", "--attention flash")),
    ],
)
def test_ranks_that_share_samples_are_read(
    text: str, wanted: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    code, out, _ = words(path, capsys, "org/model", "--gpus", "H100")
    command = out.strip().splitlines()[-1]
    assert code == 0
    assert [one for one in (*wanted, "8xH100") if one not in command] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (RING.replace("shard_size: 2", "shard_size: 4"), "x cp_size 4 is 16, and num_processes is 8"),
        (RING.replace("version: 2", "version: 1"), "parallelism_config_cp_size 4 needs fsdp_version 2"),
        (ULYSSES.replace("sp_size", "cp_size"), "parallelism_config_cp_size 8 needs fsdp_version 2"),
    ],
)
def test_ranks_that_cannot_share_samples(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    code, out, err = words(path, capsys, "org/model", "--gpus", "H100")
    assert (code, out) == (2, "")
    assert says in err.splitlines()[-1]


SHARDED_LAYERS = """
distributed_type: FSDP
num_processes: 8
mixed_precision: bf16
fsdp_config: {fsdp_version: 2}
parallelism_config: {parallelism_config_dp_shard_size: 4, parallelism_config_tp_size: 2}
"""
TITAN = """
[model]
name = "llama3"
flavor = "405B"
tokenizer_path = "./torchtitan/datasets/tokenizer/original/tokenizer.model"
[training]
batch_size = 2
seq_len = 8192
tensor_parallel_degree = 8
data_parallel_shard_degree = -1
[activation_checkpoint]
mode = "full"
[float8]
enable_float8_linear = true
"""


@pytest.mark.parametrize(
    ("text", "name", "wanted"),
    [
        (SHARDED_LAYERS, "a.yaml", ("plan org/model --gpus 8xH100 --strategy fsdp --tp 2",)),
        (
            SHARDED_LAYERS.replace("shard_size: 4", "shard_size: 1").replace("FSDP", "MULTI_GPU").replace("8", "2"),
            "a.yaml",
            ("--gpus 2xH100 --strategy tp --tp 2",),
        ),
        (TITAN, "a.toml", ("plan meta-llama/Llama-3.1-405B", "--strategy fsdp --tp 8", "--precision fp8-mixed")),
        (
            TITAN.replace("= -1", "= 1").replace("true", "false"),
            "a.toml",
            ("--gpus 8xH100 --strategy tp --tp 8", "--precision fp32"),
        ),
    ],
)
def test_ranks_that_share_layers_are_read(
    text: str, name: str, wanted: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(text)
    model = () if name.endswith("toml") else ("org/model",)
    code, out, _ = words(path, capsys, *model, "--gpus", "H100" if "shard_degree = -1" not in text else "16xH100")
    command = next(line for line in out.splitlines() if line.startswith("plan "))
    assert code == 0
    assert [one for one in wanted if one not in command] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SHARDED_LAYERS.replace("version: 2", "version: 1"), "parallelism_config_tp_size: 2 needs fsdp_version 2"),
        (SHARDED_LAYERS.replace("FSDP", "MULTI_GPU"), "beside other degrees needs distributed_type FSDP"),
        (SHARDED_LAYERS.replace("tp_size: 2", "tp_size: 4"), "x tp_size 4 is 16, and num_processes is 8"),
    ],
)
def test_ranks_that_cannot_share_layers(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    code, out, err = words(path, capsys, "org/model", "--gpus", "H100")
    assert (code, out) == (2, "")
    assert says in err


@pytest.mark.parametrize(
    ("count", "wanted"), [("8xH100", "--micro-batch 50 --grad-accum 1"), ("3xH100", "--global-batch 400")]
)
def test_the_batch_of_all_ranks_alone(
    count: str, wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"train_batch_size": 400, "steps_per_print": 10, "gradient_clipping": 1.0}')
    code, out, _ = words(path, capsys, "org/model", "--gpus", count)
    assert code == 0
    assert wanted in out
