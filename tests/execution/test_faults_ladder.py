"""Out of memory at a micro batch of one: the rungs above it are climbed, and each goes on where the job was saved."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_plan.executor.job import Job
from gpu_plan.planner.plan.files import load
from tests.support.fault_job import ENVIRONMENT
from tests.support.fault_runs import Ended, run

SCRIPT = Path(__file__).parents[1] / "support" / "ladder_script.py"
SHAPE = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256,
         "max_position_embeddings": 4096, "tie_word_embeddings": False, "dtype": "float32"}  # fmt: skip
LONG = {**SHAPE, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 8,
        "num_attention_heads": 4, "num_key_value_heads": 4}  # fmt: skip
"""2048 tokens leave 160 MiB behind, 20 under checkpointing; all states are 30 MiB."""
WIDE = {**SHAPE, "hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 6,
        "num_attention_heads": 8, "num_key_value_heads": 8}  # fmt: skip
"""Weights, gradients, their buckets and AdamW's moments: 370 MiB, half of that where they are shared out; 64 tokens
leave less than 20 MiB behind."""
PINNED = ("--gpus", "2xcpu", "--pin", "--strategy", "ddp", "--precision", "fp32", "--micro-batch", "1",
          "--grad-accum", "1", "--checkpointing", "none", "--save", "plan.json")  # fmt: skip


def limited(folder: Path, shape: dict[str, object], *, length: int, budget: int) -> Ended:
    """The planner's plan for the model under DDP, run within the limit."""
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(shape))
    words = (sys.executable, "-m", "gpu_plan", "model", "--seq-len", str(length), *PINNED)
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    arguments = ("--config", "model", "--length", str(length), "--budget", str(budget))
    return run(
        Job(
            saved=load(folder / "plan.json"), script=SCRIPT, arguments=arguments, working_directory=folder,
            max_restarts=0, environment=ENVIRONMENT,
        )
    )  # fmt: skip


@pytest.mark.slow
def test_long_sequences_are_checkpointed(tmp_path: Path) -> None:
    ended = limited(tmp_path, LONG, length=2048, budget=80)
    assert ended.causes == ["oom", "success"], ended.record
    first, second = ended.record.attempts
    assert "checkpointing none → full; the global batch stays 2" in second.changes[0]
    assert (first.strategy["name"], second.strategy["name"]) == ("ddp", "ddp")
    assert not second.deviations
    assert {rank.actual.checkpointing for rank in ended.folder.ranks()} == {True}
    assert str(second.resumed_from).endswith("step-2")
    assert (second.first_step, second.last_step) == (3, 4)
    assert not ended.orphans


@pytest.mark.slow
def test_wide_states_are_shared_out(tmp_path: Path) -> None:
    ended = limited(tmp_path, WIDE, length=64, budget=-60)
    assert ended.causes == ["oom", "success"], ended.record
    second = ended.record.attempts[-1]
    assert "strategy ddp → fsdp; the global batch stays 2" in second.changes[0]
    assert any("was converted for fsdp" in line for line in second.changes)
    assert not second.deviations
    assert {rank.actual.strategy for rank in ended.folder.ranks()} == {"fsdp"}
    assert str(second.resumed_from).endswith("step-2-as-fsdp-2")
    assert (second.first_step, second.last_step) == (3, 4)
    assert not ended.orphans
