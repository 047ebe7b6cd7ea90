"""`plan from-config` on files that the libraries themselves write."""

import json
from pathlib import Path

import pytest

from gpu_plan.cli import main

pytestmark = pytest.mark.slow


def converted(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, object]:
    capsys.readouterr()
    assert main(["from-config", str(path), "--json", *more]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_training_arguments_and_sft_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import TrainingArguments
    from trl import SFTConfig

    path = tmp_path / "arguments.json"
    path.write_text(TrainingArguments(output_dir=str(tmp_path), use_cpu=True).to_json_string())
    plain = converted(path, capsys)
    assert plain["kind"] == "trainer"
    assert plain["gpus"] == "cpu"
    assert plain["options"] == {
        "precision": "fp32",
        "optimizer": "adamw-fused",
        "micro-batch": "8",
        "grad-accum": "1",
        "checkpointing": "none",
        "stack": "trainer",
    }
    assert not plain["approximated"]
    assert "learning_rate" in str(plain["passed_over"])
    # Without a default of its own that is written down, what a file leaves out is what the class would say.
    path.write_text('{"output_dir": "o", "use_cpu": true}')
    assert converted(path, capsys)["options"] == plain["options"]
    sft = SFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, max_length=512, gradient_accumulation_steps=4)
    path.write_text(sft.to_json_string())
    found = converted(path, capsys, "--gpus", "4xA100")["options"]
    assert found == {
        "strategy": "ddp",
        "precision": "fp32",
        "optimizer": "adamw-fused",
        "micro-batch": "8",
        "grad-accum": "4",
        "seq-len": "512",
        "checkpointing": "full",
        "stack": "trl",
    }


def test_accelerate_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from accelerate.commands.config.config_args import ClusterConfig

    path = tmp_path / "accelerate.yaml"
    ClusterConfig(
        compute_environment="LOCAL_MACHINE",
        distributed_type="FSDP",
        mixed_precision="bf16",
        use_cpu=False,
        debug=False,
        num_processes=8,
        fsdp_config={"fsdp_version": 2, "fsdp_offload_params": True, "fsdp_reshard_after_forward": True},
    ).to_yaml_file(str(path))
    found = converted(path, capsys, "--gpus", "H100")
    assert found["command"] == (
        "plan MODEL --gpus 8xH100 --strategy fsdp --offload all --precision bf16-mixed --stack accelerate"
        " --set fsdp.reshard_after_forward=true"
    )
