"""Degrees of context and sequence parallel in Accelerate's files."""

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
