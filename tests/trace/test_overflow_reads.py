"""An encoder-decoder of Bart's kind in fp16: whether a layer overflowed is asked of values, and answered by name."""

import json
from pathlib import Path

import pytest

from gpu_plan.cli import main

SMALL = {"model_type": "bart", "architectures": ["BartForConditionalGeneration"], "vocab_size": 1000} | dict(
    d_model=64, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=128, decoder_ffn_dim=128,
    encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=128,
)  # fmt: skip


def test_bart_in_fp16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    assert main([str(tmp_path), "--gpus", "2xT4", "--strategy", "fsdp", "--seq-len", "64", "--pin", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["workload"]["precision"] == "fp16-mixed"
    assert any("activations do not overflow fp16" in one["text"] for one in document["assumptions"])
