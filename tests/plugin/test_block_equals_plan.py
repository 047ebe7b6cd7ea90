"""A loop written out in a block takes what the plan of the same model says: the two only share the recorder."""

import contextlib
import io
import json
from pathlib import Path

import pytest
import torch

from gpu_plan.cli import main
from gpu_plan.planner.capture.block import capture as block_capture
from gpu_plan.planner.capture.block.capture import BlockCapture
from gpu_plan.planner.search.training.evaluate import Evaluator

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "intermediate_size": 352,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
    "max_position_embeddings": 256, "tie_word_embeddings": False, "use_cache": False,
}  # fmt: skip


def loop(folder, precision):
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig.from_pretrained(folder)).train()
    optimizer = torch.optim.AdamW(model.parameters())
    region = contextlib.nullcontext() if precision == "fp32" else torch.autocast("cuda", dtype=torch.bfloat16)
    for _ in range(2):
        tokens, labels = torch.randint(0, 1000, (3, 128)), torch.randint(0, 1000, (3, 128))
        with region:
            outputs = model(input_ids=tokens, labels=labels)
            loss = outputs.loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_the_second_step_of_a_block_is_the_second_step_of_the_plan(precision, tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    streams = {}
    measured, simulated = block_capture.block_memory, Evaluator.simulate

    def of_block(stream, *rest):
        streams["block"] = stream.live(1)
        return measured(stream, *rest)

    def of_plan(self, judgement, **how):
        streams["plan"] = judgement.plan.stream.live(judgement.batch.micro_batch)
        return simulated(self, judgement, **how)

    monkeypatch.setattr(block_capture, "block_memory", of_block)
    monkeypatch.setattr(Evaluator, "simulate", of_plan)
    words = ["--gpus", "1xA100-40GB", "--strategy", "single", "--stack", "plain", "--precision", precision]
    words += ["--micro-batch", "3", "--seq-len", "128", "--pin", "--json", "--no-cache"]
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([str(tmp_path / "config.json"), *words]) == 0
    block = BlockCapture("A100-40GB", Path(__file__).parent)
    block.start()
    try:
        loop(tmp_path, precision)
    finally:
        block.stop()
    block.memory()
    assert streams["block"].max() == streams["plan"].max()
