"""Models that the real libraries quantise on the CPU: what they write, as their safetensors headers say.

    python -m tests.support.quantised_reference llama-3,gpt2 int8,nf4,torchao-int8

prints {architecture: {word: {tensor: [shape, dtype]}}}. A process of its own: whether transformers knows torchao is
settled once, and plans of adapters settle it otherwise.
"""

import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torchao  # noqa: F401  # before transformers looks for it
from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TorchAoConfig

from gpu_plan.planner.model.build.classes import config_class_of
from gpu_plan.planner.model.source.headers import read_header
from tests.accuracy.architectures import ARCHITECTURES


def header_of(folder: str) -> dict[str, Any]:
    """All tensors of a folder's safetensors files."""
    found: dict[str, Any] = {}
    for path in Path(folder).glob("*.safetensors"):
        content = path.read_bytes()
        found |= read_header(lambda at, n, c=content: c[at : at + n], len(content), path.name)  # type: ignore[misc]
    return found


def quantization(word: str) -> Any:
    """The config that a user passes for a word of `--quantize`."""
    if word == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    if word.startswith("torchao"):
        return TorchAoConfig(Int8WeightOnlyConfig() if word == "torchao-int8" else Float8WeightOnlyConfig())
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=word[:3],
        bnb_4bit_use_double_quant=word.endswith("dq"),
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def written(architecture: str, words: list[str]) -> dict[str, Any]:
    """What `save_pretrained` writes of a model loaded in each way."""
    values = ARCHITECTURES[architecture].config()
    config = config_class_of(values).from_dict(values)
    found = {}
    with tempfile.TemporaryDirectory() as plain:
        AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(plain)
        for word in words:
            model = AutoModelForCausalLM.from_pretrained(
                plain, quantization_config=quantization(word), dtype=torch.bfloat16, device_map={"": "cpu"}
            )
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                found[word] = header_of(folder)
    return found


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    torch.manual_seed(0)
    words = sys.argv[2].split(",")
    print(json.dumps({name: written(name, words) for name in sys.argv[1].split(",")}))
