"""Inputs of every family: the right kinds and shapes, and steps that run on meta as they do on the CPU."""

import json
from typing import Any

import pytest
import torch
from torch import nn

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.catalog_index import load_index
from gpu_plan.planner.trace.inputs.batch import training_batch, training_inputs, training_loss
from gpu_plan.planner.trace.inputs.given import given_batch, given_micro_batch
from tests.support.operators import step_on_cpu, step_on_meta
from tests.support.shrink import shrink
from tests.support.survey_families import smallest_per_class, survey


def build(model_id: str) -> nn.Module:
    return build_model(shrink(json.loads(load_index()[model_id].path.read_text())))


def shapes(model_id: str, batch: int = 3, seq_len: int = 40) -> dict[str, tuple[int, ...]]:
    inputs = training_inputs(build(model_id), batch=batch, seq_len=seq_len)
    return {name: tuple(value.shape) for name, value in inputs.items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize(
    ("model_id", "expected"),
    [
        ("meta-llama/Llama-3.1-8B", {"input_ids": (3, 40), "labels": (3, 40)}),
        ("google-bert/bert-large-uncased", {"input_ids": (3, 40), "labels": (3, 40)}),
        ("google-bert/bert-base-uncased", {"input_ids": (3, 40)}),
        ("google-t5/t5-small", {"input_ids": (3, 40), "labels": (3, 40)}),
        ("openai/whisper-tiny", {"input_features": (3, 80, 3000), "labels": (3, 40)}),
        ("google/vit-base-patch16-224", {"pixel_values": (3, 3, 224, 224), "labels": (3,)}),
        ("facebook/dinov2-small", {"pixel_values": (3, 3, 518, 518)}),
        ("openai/clip-vit-base-patch32", {"input_ids": (3, 40), "pixel_values": (3, 3, 224, 224)}),
        (
            "microsoft/deberta-v3-base",
            {"input_ids": (3, 40), "start_positions": (3,), "end_positions": (3,)},
        ),
        ("facebook/w2v-bert-2.0", {"input_features": (3, 40, 160)}),
    ],
)
def test_kinds_and_shapes(model_id: str, expected: dict[str, tuple[int, ...]]) -> None:
    assert shapes(model_id) == expected


def test_all_tensors_are_on_meta_and_integers_have_values() -> None:
    batch = training_batch(build("Qwen/Qwen2-VL-2B-Instruct"), batch=2, seq_len=600)
    assert {value.device.type for value in batch.tensors.values()} == {"meta"}
    integers = {name for name, value in batch.tensors.items() if not value.is_floating_point()}
    assert set(batch.values) == integers == {"input_ids", "labels", "image_grid_thw", "mm_token_type_ids"}


def test_texts_are_no_longer_than_the_decoder_allows() -> None:
    batch = training_batch(build("openai/whisper-tiny"), batch=1, seq_len=4096)
    assert batch.tensors["labels"].shape == (1, 448)
    assert any("448" in note for note in batch.notes)


def test_waveforms_give_the_number_of_frames_asked_for() -> None:
    model: Any = build("facebook/wav2vec2-base-960h")
    samples = training_inputs(model, batch=1, seq_len=49)["input_values"].shape[1]
    assert int(model._get_feat_extract_output_lengths(torch.tensor(samples))) == 49


def test_placeholders_match_the_image() -> None:
    model: Any = build("google/gemma-3-4b-it")
    values = training_batch(model, batch=2, seq_len=300).values
    image = values["input_ids"] == model.config.image_token_id
    assert image.sum(1).tolist() == [256, 256]
    assert torch.equal(image.long(), values["token_type_ids"])


def test_special_tokens_stay_out_of_the_text() -> None:
    model: Any = build("HuggingFaceTB/SmolLM2-135M")
    ids = training_batch(model, batch=1, seq_len=2000).values["input_ids"]
    assert not torch.isin(ids, torch.tensor([model.config.bos_token_id, model.config.eos_token_id])).any()


def test_what_cannot_be_met_is_one_line() -> None:
    model = build("llava-hf/llava-1.5-7b-hf")
    with pytest.raises(InputError, match="--seq-len of at least 578"):
        training_batch(model, batch=1, seq_len=100)
    with pytest.raises(InputError, match="at least 1"):
        training_batch(model, batch=0, seq_len=100)
    with pytest.raises(InputError, match="no config"):
        training_batch(nn.Linear(2, 2), batch=1, seq_len=1)


def test_bare_models_say_what_stands_in_for_their_loss() -> None:
    batch = training_batch(build("BAAI/bge-large-en"), batch=1, seq_len=8)
    assert batch.loss == "mean of the last hidden state"
    assert any("no loss of its own" in note for note in batch.notes)


class TestLoss:
    def test_scalar_attribute_first_element(self) -> None:
        model, scalar = nn.Linear(1, 1), torch.tensor(2.0)
        outputs = type("Outputs", (), {"loss": scalar})()
        assert training_loss(model, scalar) is scalar
        assert training_loss(model, outputs) is scalar
        assert training_loss(model, (scalar, 3)) is scalar
        assert training_loss(model, {"logits": 1, "loss": scalar}) is scalar
        assert training_loss(model, (torch.tensor([1.0, 3.0]),)).item() == 2.0

    @pytest.mark.parametrize("outputs", [None, (), {}, "x", torch.tensor(1), ([],)])
    def test_no_loss_is_refused(self, outputs: Any) -> None:
        with pytest.raises(InputError, match="no loss tensor"):
            training_loss(nn.Linear(1, 1), outputs)


class Pair(nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return (left * right).sum() * scale


class TestGivenInputs:
    def test_a_tuple_gets_the_forwards_names_and_the_batch_is_resized(self) -> None:
        given = (torch.zeros(2, 5), torch.arange(2))
        batch = given_batch(Pair(), given, batch=3)
        assert {n: tuple(t.shape) for n, t in batch.tensors.items()} == {"left": (3, 5), "right": (3,)}
        assert batch.values["right"].tolist() == [0, 1, 0]
        assert given_micro_batch(Pair(), given) == 2

    def test_other_dimensions_and_plain_values_stay(self) -> None:
        batch = given_batch(Pair(), {"left": torch.zeros(4, 5), "right": torch.zeros(5), "scale": 2.0}, batch=1)
        assert tuple(batch.tensors["right"].shape) == (5,)
        assert batch.tensors["scale"] == 2.0

    @pytest.mark.parametrize("given", [(), {"left": torch.zeros(1)}, {"x": 1}, ("a", "b"), {"left": 1, "right": 2}])
    def test_what_does_not_fit_is_refused(self, given: Any) -> None:
        with pytest.raises(InputError):
            given_batch(Pair(), given)


TINY: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2},
    "mixtral": {"num_key_value_heads": 2, "num_local_experts": 4},
    "bert": {"tie_word_embeddings": False},
    "qwen2_vl": {
        "num_key_value_heads": 2,
        "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
        "image_token_id": 150,
        "video_token_id": 151,
        "vision_start_token_id": 152,
        "vision_end_token_id": 153,
        "vision_config": {"depth": 1, "embed_dim": 32, "num_heads": 2, "hidden_size": 64},
    },
}


@pytest.mark.parametrize("model_type", TINY)
def test_meta_runs_the_operators_that_the_cpu_runs(model_type: str) -> None:
    """Known values are the true ones: branches, splits and shapes come out as with real tensors."""
    sizes = {
        "model_type": model_type,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 96,
        "vocab_size": 200,
        "hidden_dropout_prob": 0.0,
    }
    config = sizes | TINY[model_type]
    batch = training_batch(build_model(config), batch=2, seq_len=300)
    on_meta = step_on_meta(build_model(config, attention="eager"), batch)
    on_cpu = step_on_cpu(build_model(config, attention="eager"), batch)
    assert len(on_meta) > 100
    assert on_meta == on_cpu


FAST = (
    "llama",
    "bert",
    "t5",
    "whisper",
    "vit",
    "clip",
    "gemma3",
    "qwen3_moe",
    "mamba2",
    "deepseek_v3",
)
NEEDS_POLICY = {"deberta-v2"}
"""Asks whether there is padding, in order to warn."""


def assert_runs(model_type: str, config: dict[str, Any], seq_len: int) -> None:
    result = survey(model_type, config, batch=2, seq=seq_len)
    assert result["ok"], result
    unknown = [site for site in result["reads"] if site.endswith("UNKNOWN")]
    assert not unknown or model_type in NEEDS_POLICY, unknown


@pytest.mark.parametrize("model_type", FAST)
def test_a_step_of_each_kind_runs_on_meta(model_type: str) -> None:
    name, config = next(pair for pair in smallest_per_class() if pair[0] == model_type)
    assert_runs(name, config, 600)


@pytest.mark.slow
def test_a_step_of_every_class_of_the_catalog_runs_on_meta() -> None:
    pairs = smallest_per_class()
    assert len(pairs) == 85
    for name, config in pairs:
        assert_runs(name, config, 600)


def test_tokens_beyond_what_is_followed_are_not_filled_in():
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                             num_attention_heads=1, vocab_size=16))  # fmt: skip
    batch = training_batch(model, batch=1 << 20, seq_len=64)
    assert batch.tensors["input_ids"].shape == (1 << 20, 64)
    assert batch.tensors["input_ids"].is_meta
    assert batch.values == {}
