"""A checkpoint in fp32 that one GPU does not hold: in 16 bits it does, which is what the report begins with."""

import json
from pathlib import Path

import pytest

from gpu_plan.cli import main

WIDE = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "dtype": "float32",
    "num_hidden_layers": 2,
} | dict(hidden_size=2048, intermediate_size=8192, num_attention_heads=16, num_key_value_heads=16, vocab_size=64000)
"""1.5 GiB in fp32."""


@pytest.mark.parametrize(("gpu", "reserve", "narrow"), [("1xL4", 20800, "bf16"), ("1xT4", 13200, "fp16")])
def test_16_bits_before_fewer(
    gpu: str,
    reserve: int,
    narrow: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "config.json").write_text(json.dumps(WIDE))
    words = (str(tmp_path), "--gpus", gpu, "--task", "infer", "--context", "256", "--json")
    main([*words, "--set", f"memory.reserve={reserve}MiB"])
    document = json.loads(capsys.readouterr().out)
    assert document["workload"]["precision"] == "fp32"
    first = document["alternatives"][0]
    assert (first["change"], first["host_bytes_per_node"]) == (f"--precision {narrow}", 0)
    if document["plans"]:
        assert document["headline"].startswith(f"--precision {narrow} keeps nothing in the node's RAM: single GPU")
