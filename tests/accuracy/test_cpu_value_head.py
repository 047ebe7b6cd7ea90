"""PPO with a value head on the policy's trunk against figures of a real loop on a CPU.

The figures are of TRL 0.9.6's own wrapper, value head and PPOTrainer.loss and of LLaMA-Factory's own
batched_forward_pass (ff6d4d12), taken from their sources and run on a real Llama of transformers 5.23 with torch
2.13.0 on a CPU, in fp32; profiled by tests.support.cpu_reference. Their functions are not here: TRL 1.16 dropped them.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.session import TracingSession
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.adapters import Peft
from gpu_plan.planner.workload.losses import VALUED
from gpu_plan.planner.workload.stacks.registry import Stack
from gpu_plan.planner.workload.training import Attention, Checkpointing
from tests.support.replay_cpu import Figures, replayed


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run: layers, samples, tokens of each."""

    layers: int
    samples: int
    tokens: int
    checkpointing: Checkpointing = Checkpointing.NONE
    adapted: bool = False
    real: Figures

    def __str__(self) -> str:
        words = f"{self.layers} layers, {self.samples} x {self.tokens}, {self.checkpointing}"
        return f"{words}, adapters" if self.adapted else words


FULL = Checkpointing.FULL
CASES = (
    Case(layers=2, samples=2, tokens=64, real=Figures(peak=2472784, forward_end=1955176, backward_end=875456)),
    Case(layers=4, samples=3, tokens=60, real=Figures(peak=5232024, forward_end=4504908, backward_end=1329296)),
    Case(layers=8, samples=2, tokens=40, real=Figures(peak=3887056, forward_end=3566632, backward_end=1810304)),
    Case(
        layers=2, samples=2, tokens=64, checkpointing=FULL,
        real=Figures(peak=1443776, forward_end=769896, backward_end=875456),
    ),
    Case(
        layers=6, samples=2, tokens=40, checkpointing=FULL,
        real=Figures(peak=1721920, forward_end=561512, backward_end=1465216),
    ),
    # Rank 4 on q_proj and v_proj, and a second adapter that stands beside it, frozen.
    Case(
        layers=2, samples=2, tokens=64, adapted=True,
        real=Figures(peak=2021712, forward_end=1504104, backward_end=275136),
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_update_is_that_of_the_real_loop(case: Case, tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLMWithValueHead"], "vocab_size": 512,
        "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": case.layers, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 256, "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    adapter = Adapter(peft=Peft("lora"), rank=4, targets=("q_proj", "v_proj"), beside=1) if case.adapted else None
    session = TracingSession(resolve(str(tmp_path)), DeviceKind(capability=None), "sdpa", adapter)
    variant = StepVariant(
        regime=Regime(weights="float32"),
        checkpointing=case.checkpointing,
        attention=Attention.SDPA,
        stack=Stack.PLAIN,
        seq_len=case.tokens,
        loss=VALUED,
    )
    assert replayed(session.trace(variant, case.samples), case.samples) == case.real
