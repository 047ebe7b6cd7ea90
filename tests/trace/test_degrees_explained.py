"""`--explain` of a plan with a degree within a layer: the job without it, evaluated as a job of its own."""

import json

import pytest

from gpu_plan.cli import main

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 512,
    "max_position_embeddings": 128,
}  # fmt: skip


@pytest.mark.slow
def test_without_its_degree_the_job_is_what_it_is_when_planned_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))

    def first(*words: str) -> dict[str, object]:
        assert main(["model", "--gpus", "2xH100", "--micro-batch", "4", "--json", *words]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)["plans"][0]
        return found

    told = first("--tp", "2", "--pin", "--explain")["speed"]["degrees"]  # type: ignore[index]
    assert [one["axis"] for one in told] == ["tensor"]
    without = told[0]["without"].partition(",")[0]
    alone = first("--strategy", without.lower(), "--checkpointing", "none", "--offload", "none")
    assert alone["memory"]["device_used_bytes"] == told[0]["without_device_used_bytes"]  # type: ignore[index]
    assert alone["speed"]["samples_per_second"] == told[0]["without_samples_per_second"]  # type: ignore[index]
