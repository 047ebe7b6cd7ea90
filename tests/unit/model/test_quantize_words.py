"""The words of --quantize and published quantization_configs: what they mean, and one line for what makes no sense."""

import subprocess
import sys
from typing import Any

import pytest

from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.model.quantization.configs import scheme_of
from gpu_plan.planner.model.quantization.scheme import Method
from gpu_plan.planner.model.quantization.words import WORDS, parse_quantize


@pytest.mark.parametrize("word", [word for word in WORDS if ":" not in word])
def test_a_word_names_itself(word: str) -> None:
    scheme = parse_quantize(word)
    assert scheme is not None
    assert scheme.word == word
    assert parse_quantize(word.upper()) == scheme


def test_words_that_carry_numbers() -> None:
    scheme = parse_quantize("gptq-3bit-64-act")
    assert scheme is not None
    assert (scheme.method, scheme.bits, scheme.group_size, scheme.desc_act) == (Method.GPTQ, 3, 64, True)
    channel = parse_quantize("gptq-8bit-channel")
    assert channel is not None
    assert channel.group_size is None
    assert parse_quantize("none") is None
    file = parse_quantize("gguf:a/B_c.gguf")
    assert file is not None
    assert file.path == "a/B_c.gguf"


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("int9", "Did you mean int8"),
        ("gptq-5bit-128", "2, 3, 4 or 8 bits"),
        ("gptq-4bit-48", "groups of 48"),
        ("awq-8bit-128", "awq has 4 bits"),
        ("awq-4bit-128-act", "no activation order"),
        ("torchao-int4-48", "32, 64, 128 or 256"),
        ("gguf:", "names no file"),
        ("", "is unknown"),
    ],
)
def test_other_words_are_refused_in_one_line(word: str, told: str) -> None:
    with pytest.raises(UsageError, match="--quantize") as caught:
        parse_quantize(word)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True}, "gptq-4bit-128-act"),
    ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "gptq-8bit-channel"),
    ({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}, "awq-4bit-128"),
    ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, "awq-4bit-64"),
    ({"load_in_8bit": True, "llm_int8_threshold": 6.0}, "int8"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "fp4"),
    ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}, "nf4-dq"),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
    ({"quant_method": "fp8", "weight_block_size": None}, "fp8-tensor"),
    ({"quant_method": "mxfp4"}, "mxfp4"),
    (
        {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": {"a": {"weights": {"type": "int", "num_bits": 4, "strategy": "group", "group_size": 32}}},
        },
        "int4-32",
    ),
]


@pytest.mark.parametrize(("values", "word"), CONFIGS, ids=[word for _, word in CONFIGS])
def test_published_configs_are_read(values: dict[str, Any], word: str) -> None:
    scheme = scheme_of({"model_type": "llama", "quantization_config": values})
    assert scheme is not None
    assert scheme.word == word
    assert scheme.prequantised
    nested = scheme_of({"model_type": "llava", "text_config": {"quantization_config": values}})
    assert nested is not None
    assert nested.key() == scheme.key()


def test_a_plain_config_has_no_scheme() -> None:
    assert scheme_of({"model_type": "llama", "quantization_config": None}) is None


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ("int4", "write an object"),
        ({"bits": 4}, "no quant_method"),
        ({"quant_method": "gptqq", "bits": 4}, "Did you mean gptq"),
        ({"quant_method": ["gptq"]}, "write a name"),
        ({"quant_method": "gptq", "bits": 5}, "2, 3, 4, 8"),
        ({"quant_method": "gptq", "bits": True}, "bits is True"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size is 0"),
        ({"quant_method": "gptq", "bits": 4, "desc_act": "yes"}, "true or false"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*": {"bits": 8}}}, "not planned yet"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "gemm is"),
        ({"quant_method": "awq", "bits": 4, "modules_to_not_convert": "lm_head"}, "list of module names"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "two positive numbers"),
        ({"quant_method": "fp8", "weight_block_size": [128, -1]}, "two positive numbers"),
        ({"quant_method": "fp8", "activation_scheme": "sometimes"}, "dynamic, static"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["("]}, "neither a module's name"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["(a+)+b"]}, "too involved"),
        ({"load_in_4bit": True, "load_in_8bit": True}, "keep one"),
        ({"load_in_8bit": True, "llm_int8_threshold": "six"}, "at least 0"),
        ({"load_in_8bit": True, "llm_int8_has_fp16_weight": True}, "16-bit weights"),
        ({"quant_method": "bitsandbytes"}, "set one"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "at least one group"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {}}}, "quantises no weights"),
    ],
)
def test_nonsense_is_refused_in_one_line(values: object, told: str) -> None:
    with pytest.raises(InputError) as caught:
        scheme_of({"model_type": "llama", "quantization_config": values})
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_words_and_configs_need_no_torch() -> None:
    code = (
        "import sys\n"
        "from gpu_plan.planner.model.quantization import parse_quantize\n"
        "from gpu_plan.planner.model.quantization.configs import scheme_of\n"
        "parse_quantize('nf4'); scheme_of({'quantization_config': {'quant_method': 'mxfp4'}})\n"
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1500, check=True)
    assert done.stdout.strip() == "[]"
