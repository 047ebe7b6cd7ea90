"""`plan FOLDER` of a model of diffusers: every class is called as its scripts call it, and its loop is captured."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_plan.cli import main
from gpu_plan.planner.capture.diffusion.inputs import CLASSES
from gpu_plan.planner.model.source.diffused import TRAINED

_BLOCKS = {"block_out_channels": [32, 32], "norm_num_groups": 8, "layers_per_block": 1, "sample_size": 8}
_SMALL = {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 1, "sample_size": 8, "norm_num_groups": 4}
TINY: dict[str, dict[str, Any]] = {
    "UNet2DModel": {
        **_BLOCKS, "down_block_types": ["DownBlock2D"] * 2, "up_block_types": ["UpBlock2D"] * 2, "in_channels": 3,
        "out_channels": 3, "num_class_embeds": 3,
    },
    "UNet2DConditionModel": {
        **_BLOCKS, "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"], "cross_attention_dim": 16, "attention_head_dim": 8,
        "addition_embed_type": "text_time", "addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 64,
    },
    "DiTTransformer2DModel": {**_SMALL, "in_channels": 4, "out_channels": 8, "num_embeds_ada_norm": 10},
    "PixArtTransformer2DModel": {
        **_SMALL, "in_channels": 4, "out_channels": 8, "caption_channels": 12, "cross_attention_dim": 24,
        "sample_size": 128, "num_attention_heads": 3,
    },
    "SD3Transformer2DModel": {
        "sample_size": 8, "patch_size": 2, "in_channels": 4, "out_channels": 4, "num_layers": 1,
        "attention_head_dim": 8,
        "num_attention_heads": 2, "joint_attention_dim": 12, "caption_projection_dim": 16,
        "pooled_projection_dim": 10,
        "pos_embed_max_size": 16,
    },
    "FluxTransformer2DModel": {
        "in_channels": 4, "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2,
        "joint_attention_dim": 12, "pooled_projection_dim": 10, "guidance_embeds": True, "axes_dims_rope": [4, 6, 6],
    },
    "AutoencoderKL": {
        "block_out_channels": [32], "norm_num_groups": 8, "down_block_types": ["DownEncoderBlock2D"],
        "up_block_types": ["UpDecoderBlock2D"], "sample_size": 16,
    },
}  # fmt: skip


def test_every_class_has_its_inputs() -> None:
    assert tuple(CLASSES) == TRAINED == tuple(TINY)


@pytest.mark.parametrize("name", TINY)
def test_a_class_is_called_as_its_scripts_call_it(name: str) -> None:
    import diffusers

    from gpu_plan.planner.capture.diffusion.train import _loss

    with torch.device("meta"):
        model = getattr(diffusers, name).from_config(TINY[name])
        inputs = CLASSES[name](dict(model.config))
        batch = {key: torch.empty(2, *value.shape, dtype=value.dtype) for key, value in inputs.stored.items()}
        shared = {key: torch.empty_like(value) for key, value in inputs.whole.items()}
        loss = _loss(model, batch, shared, torch.float32)
    assert loss.shape == ()
    loss.backward()
    assert any(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.slow
def test_a_folder_is_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import diffusers

    with torch.device("meta"):
        model = diffusers.UNet2DModel.from_config(TINY["UNet2DModel"])
    model.save_config(tmp_path)
    words = [str(tmp_path), "--gpus", "1xT4", "--pin", "--micro-batch", "2", "--checkpointing", "full", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"]["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    plan = found["plans"][0]
    assert plan["strategy"]["checkpointing"] == "full"
    assert plan["command"] is None


@pytest.mark.parametrize("words", [["--task", "infer"], ["--seq-len", "8"], ["--peft", "qlora"], ["--lora-rank", "2"]])
def test_what_a_loop_of_diffusers_does_not_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"_class_name": "UNet2DModel", "_diffusers_version": "0.6.0"}))
    assert main([str(tmp_path), "--gpus", "1xT4", *words]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
