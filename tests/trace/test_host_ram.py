"""A node whose RAM is known and too small to load the model: the plan says so, though its GPUs have room."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gpu_plan import cli
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job import run as job
from gpu_plan.planner.units import MIB

CONFIG = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=2048)


@pytest.mark.usefixtures("plans_alone")
@pytest.mark.parametrize(("ram", "code"), [(MIB, 1), (64 * MIB, 0)])
def test_two_ranks_that_each_cast_the_weights_need_ram_for_both(
    ram: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = LlamaForCausalLM(CONFIG).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "model")
    found = job.find_cluster("2xT4")

    def with_ram(*_: object) -> Cluster:
        return replace(found, host_ram_bytes=ram)

    monkeypatch.setattr(job, "find_cluster", with_ram)
    capsys.readouterr()  # what libraries say when they are first imported
    words = ["--gpus", "2xT4", "--strategy", "ddp", "--precision", "fp32", "--seq-len", "64", "--pin", "--no-cache"]
    assert cli.main([str(tmp_path / "model"), *words, "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    (plan,) = document["plans"] + document["rejected"]
    whole = 4 * sum(parameter.numel() for parameter in model.parameters())
    host = plan["memory"]["host"]
    assert (host["load_bytes"], host["step_bytes"], host["save_bytes"]) == (2 * whole, 0, whole)
    assert MIB < 2 * whole < 64 * MIB
    assert plan["verdict"] == ("no" if code else "fits")
    if code:
        assert "of host memory on each node to load the model" in plan["reason"]
        assert plan["memory"]["headroom_bytes"] > 0
