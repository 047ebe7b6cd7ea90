"""Count what every quantised catalog model stores; what `tests/golden/quantised.json` is made from.

python -m tests.support.count_quantised > tests/golden/quantised.json
"""

import json
import math
from collections import Counter
from typing import Any

import torch

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.quantization.apply import quantise
from gpu_plan.planner.model.quantization.configs import scheme_of
from gpu_plan.planner.model.quantization.scheme import QuantisedFacts
from tests.support.count_catalog import native_entries

RULES = {
    "Qwen/Qwen3-32B-FP8": "all",
    "MiniMaxAI/MiniMax-M2.5": "all",
    "deepseek-ai/DeepSeek-V3": "prediction",
    "deepseek-ai/DeepSeek-R1": "prediction, no scales",
    "deepseek-ai/DeepSeek-V3.2": "prediction, no scales",
    "openai/gpt-oss-20b": "unpacked",
    "openai/gpt-oss-120b": "unpacked",
}
"""How the publisher counted: every stored element; elements as they were before packing; or with the layer that
predicts a further token, which transformers does not build, with or without the block scales."""


def built(config: dict[str, Any]) -> QuantisedFacts:
    """The model of a config, quantised as it says."""
    scheme = scheme_of(config)
    assert scheme is not None
    return quantise(build_model(config, dtype=torch.bfloat16), scheme)


def elements(facts: QuantisedFacts, *, scales: bool = True) -> int:
    """Stored elements."""
    held = facts.checkpoint.items()
    return sum(math.prod(shape) for name, (shape, _) in held if scales or not name.endswith("scale_inv"))


def counted(config: dict[str, Any], facts: QuantisedFacts, rule: str) -> int:
    """The number that the publisher would have counted."""
    if rule == "unpacked":
        return facts.parameters
    if rule == "all":
        return elements(facts)
    hidden, words = config["hidden_size"], config["vocab_size"]
    longer = built({**config, "num_hidden_layers": config["num_hidden_layers"] + 1})
    # deepseek-ai/DeepSeek-V3 README_WEIGHTS.md: its own embedding and head, eh_proj over two hidden states, three norms
    added = 2 * words * hidden + 2 * hidden * hidden + 3 * hidden
    return elements(longer, scales="no scales" not in rule) + added


def table() -> dict[str, Any]:
    """Every catalog model whose config is quantised and whose class transformers has."""
    found: dict[str, Any] = {}
    for entry in native_entries():
        config = json.loads(entry.path.read_text())
        if scheme_of(config) is None:
            continue
        facts = built(config)
        by_dtype: Counter[str] = Counter()
        for shape, dtype in facts.checkpoint.values():
            by_dtype[dtype] += math.prod(shape)
        rule = RULES.get(entry.id)
        found[entry.id] = {
            "word": facts.scheme.word,
            "layers": facts.layers,
            "parameters": facts.parameters,
            "elements": dict(sorted(by_dtype.items())),
            "checkpoint_bytes": facts.checkpoint_bytes,
            "resident_bytes": facts.resident_bytes,
            "published": entry.published_params,
            "counted": counted(config, facts, rule) if rule else None,
            "rule": rule,
        }
    return found


if __name__ == "__main__":
    print(json.dumps(table(), indent=1))
