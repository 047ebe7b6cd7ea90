"""Values of a config that a model's class would take as they come, and that mean nothing: refused, with the reason."""

import json
import subprocess
import sys

import pytest

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.config_sizes import BOUNDS, validate_config

NONSENSE = (
    ({"rope_theta": 0}, "rope_theta is 0: write a number above 0"),
    ({"rope_theta": -1e4}, "write a number above 0"),
    ({"rope_parameters": {"rope_theta": 0.0}}, "rope_parameters.rope_theta is 0.0: write a number above 0"),
    ({"rope_parameters": {"full_attention": {"rope_theta": 0}}}, "full_attention.rope_theta is 0"),
    ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "rope_scaling.factor is 0: write a number above 0"),
    ({"rope_scaling": {"low_freq_factor": -1.0}}, "rope_scaling.low_freq_factor is -1.0"),
    ({"rotary_pct": 0}, "rotary_pct is 0"),
    ({"moe_intermediate_size": 0}, "moe_intermediate_size is 0: write a number of at least 1"),
    ({"intermediate_size": 0}, "intermediate_size is 0: write a number of at least 1"),
    ({"text_config": {"moe_intermediate_size": 0}}, "text_config.moe_intermediate_size is 0"),
    ({"intermediate_size": [0, -1]}, "intermediate_size[1] is -1: write a number of at least 0"),
    ({"attention_dropout": 2}, "attention_dropout is 2: write a share from 0 to 1"),
    ({"attention_dropout": -0.1}, "write a share from 0 to 1"),
    ({"hidden_dropout_prob": "half"}, "hidden_dropout_prob is 'half': write a share from 0 to 1"),
    ({"resid_pdrop": 1.5}, "resid_pdrop is 1.5"),
    ({"encoder_layerdrop": 3}, "encoder_layerdrop is 3"),
    ({"torch_dtype": "os"}, "torch_dtype is 'os': write a type of torch, such as 'bfloat16'"),
    ({"dtype": "torch.nn"}, "dtype is 'torch.nn'"),
    ({"vision_config": {"torch_dtype": "load"}}, "vision_config.torch_dtype is 'load'"),
    ({"dtype": "\x1b[2J"}, r"dtype is '\x1b[2J'"),
    ({"rms_norm_eps": 0}, "rms_norm_eps is 0: write a number above 0"),
    ({"layer_norm_eps": -1e-5}, "layer_norm_eps is -1e-05"),
    ({"fancy_hidden_size": 0}, "fancy_hidden_size is 0: write a number of at least 1"),
    ({"num_fancy_heads": -2}, "num_fancy_heads is -2"),
    ({"rope_theta": True}, "rope_theta is True: write a number above 0"),
    ({"num_experts": 4, "num_experts_per_tok": 5}, "num_experts_per_tok is 5 of 4 experts: write a number from 1 to 4"),
    ({"num_local_experts": 8, "num_experts_per_tok": 0}, "write a number from 1 to 8"),
    ({"text_config": {"n_routed_experts": 2, "moe_top_k": 3}}, "text_config.moe_top_k is 3 of 2 experts"),
    ({"decoder_sparse_step": 0}, "decoder_sparse_step is 0: write a number of at least 1"),
    ({"sliding_window": -5}, "sliding_window is -5: write a number of at least 1, or null for none"),
)


@pytest.mark.parametrize(("values", "message"), NONSENSE, ids=str)
def test_nonsense_is_refused_with_its_reason(values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        validate_config({"model_type": "llama", **values}, "config.json")
    assert str(caught.value).startswith("config.json: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"attention_dropout": 0}, {"attention_dropout": 1.0}, {"token_dropout": True}, {"norm_topk_prob": False},
        {"num_experts": 0, "num_experts_per_tok": 0}, {"sliding_window": 0}, {"sliding_window": -1},
        {"dtype": "torch.bfloat16"}, {"torch_dtype": "auto"}, {"shared_expert_intermediate_size": 0},
        {"rope_scaling": {"factor": 8.0, "mscale_all_dim": 0.707}}, {"layer_rope_theta": [1e4, 0, 1e4]},
        {"intermediate_size": [4096, 0]}, {"window_size": -1}, {"encoder_no_repeat_ngram_size": 0}, {"eps": 0.0},
    ],
    ids=str,
)  # fmt: skip
def test_what_models_have_is_taken(values: dict[str, object]) -> None:
    validate_config({"model_type": "llama", **values}, "config.json")


_DEFAULTS = """
import json, warnings
warnings.filterwarnings("ignore")
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES
for name in CONFIG_MAPPING_NAMES:
    try:
        values = CONFIG_MAPPING[name]().to_dict()
    except Exception:
        continue
    print(json.dumps({str(key): value for key, value in values.items()}, default=str))
"""


@pytest.mark.slow
def test_every_default_of_transformers_own_classes_is_taken() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DEFAULTS], capture_output=True, text=True, timeout=1500, check=True
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) > 700
    refused = [message for line in lines if (message := _refusal(json.loads(line)))]
    # Sizes that a few classes leave at 0, or list, until they are told.
    mine = [message for message in refused if message.split(" ")[1].rpartition(".")[2].split("[")[0] not in BOUNDS]
    assert mine == []


def _refusal(values: dict[str, object]) -> str:
    try:
        validate_config(values, "config.json")
    except InputError as problem:
        return str(problem)
    return ""
