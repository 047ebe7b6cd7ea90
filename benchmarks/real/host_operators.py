"""What the host does with an eager operator, by what it records: processor time for each, over that without gradients.

    .venv/bin/python -m benchmarks.real.host_operators

writes benchmarks/results/host_operators.json. A Llama so narrow that its operators compute next to nothing, with and
without adapters; the least of several runs, in processor time, so that what else the machine does hardly counts. Only
the ratios are used (planner/speed/efficiency.toml: issuing).
"""

import json
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.places import RESULTS

RESULT = RESULTS / "host_operators.json"
_TIMES, _RUNS = 3, 12
_VIEWS = frozenset(
    {
        "view", "_unsafe_view", "transpose", "t", "expand", "slice", "unsqueeze", "select", "permute", "detach",
        "alias", "split", "split_with_sizes", "as_strided", "squeeze", "_reshape_alias", "unbind",
    }
)  # fmt: skip
"""Operators that launch nothing; a trace does not hold them either."""
_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Counted(TorchDispatchMode):
    """Operators that would launch a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func._overloadpacket.__name__ not in _VIEWS
        return func(*args, **(kwargs or {}))


def main() -> None:
    """Writes the ratios."""
    torch.set_num_threads(1)
    found = [
        {name: _ratios(adapters) for name, adapters in (("full", False), ("adapters", True))} for _ in range(_TIMES)
    ]
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    print(RESULT.read_text())


def _ratios(adapters: bool) -> dict[str, float]:
    """Microseconds an operator without gradients; ratios to it of a step by kind of checkpoint."""
    model = narrow_llama(adapters)
    tokens = torch.randint(0, 256, (1, 8))

    def inferred() -> None:
        with torch.no_grad():
            model(tokens)

    def stepped() -> None:
        model(input_ids=tokens, labels=tokens).loss.backward()
        for parameter in model.parameters():
            parameter.grad = None

    alone = _seconds(inferred)
    found = {"no_grad_us": round(alone * 1e6, 1), "recording": round(_seconds(stepped) / alone, 2)}
    for name, reentrant in (("checkpointed", False), ("reentrant", True)):
        model.train()
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model.enable_input_require_grads()
        found[name] = round(_seconds(stepped) / alone, 2)
    return found


def narrow_llama(adapters: bool) -> Any:
    """So narrow that its operators compute next to nothing; with or without adapters."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 16, "vocab_size": 256}
    model: Any = LlamaForCausalLM(LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **sizes))
    if not adapters:
        return model
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(r=4, target_modules=list(_TARGETS), lora_dropout=0.05))


def _seconds(call: Callable[[], None]) -> float:
    """Least processor time of a call, by operator."""
    for _ in range(3):
        call()
    with Counted() as counted:
        call()
    spent = []
    for _ in range(_RUNS):
        begun = time.process_time()
        call()
        spent.append(time.process_time() - begun)
    return min(spent) / counted.count


if __name__ == "__main__":
    main()
