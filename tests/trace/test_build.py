"""The real class, its parameters and nothing else: counts, notes, refusals, imports."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gpu_plan.planner.errors import InputError, NotBuiltError, UsageError
from gpu_plan.planner.model.build.construct import build_model, from_factory
from gpu_plan.planner.model.build.specs import notes_of, spec_of
from gpu_plan.planner.model.catalog_index import load_index
from tests.support.calls import calls_of
from tests.support.count_catalog import counts, native_entries

GOLDEN = json.loads(Path(__file__).parents[1].joinpath("golden", "parameters.json").read_text())

SAMPLE = [
    "Qwen/Qwen3-0.6B",
    "meta-llama/Llama-3.1-8B",
    "google/gemma-2-2b",
    "mistralai/Mixtral-8x7B-v0.1",
    "deepseek-ai/DeepSeek-V3",
    "google-bert/bert-base-uncased",
    "facebook/esm2_t6_8M_UR50D",
    "google-t5/t5-small",
    "openai/whisper-tiny",
    "google/vit-base-patch16-224",
    "Qwen/Qwen2-VL-2B-Instruct",
    "state-spaces/mamba-2.8b-hf",
    "ai21labs/Jamba-v0.1",
    "moonshotai/Kimi-K2.5",
]

TINY_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 256,
}


def config_of(model_id: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(load_index()[model_id].path.read_text())
    return config


def assert_one_line(message: str) -> None:
    assert message.strip()
    assert "\n" not in message


@pytest.mark.parametrize("model_id", SAMPLE)
def test_counts_equal_the_golden_and_the_published_ones(model_id: str) -> None:
    entry = load_index()[model_id]
    found = counts(entry)
    assert found == GOLDEN[model_id]
    assert found["parameters"] == entry.meta_params
    if entry.status == "ok":
        assert found["parameters"] == entry.published_params


@pytest.mark.slow
def test_every_native_model_of_the_catalog_builds_and_counts() -> None:
    entries = native_entries()
    found = {entry.id: counts(entry) for entry in entries}
    assert len(found) == 196
    assert found == GOLDEN
    exact = [entry for entry in entries if entry.status == "ok"]
    assert len(exact) == 98
    assert [e.id for e in exact if found[e.id]["parameters"] != e.published_params] == []


def test_models_without_a_class_are_refused_in_one_line_without_a_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked on stdin"))
    strangers = [entry for entry in load_index().values() if not entry.native]
    assert len(strangers) == 7
    for entry in strangers:
        with pytest.raises(UsageError, match="--trust-remote-code") as refusal:
            build_model(json.loads(entry.path.read_text()))
        assert_one_line(str(refusal.value))


def test_remote_code_is_refused_by_name_until_it_exists() -> None:
    with pytest.raises(NotBuiltError, match="--trust-remote-code"):
        build_model(TINY_LLAMA, trust_remote_code=True)


def test_nothing_is_allocated_and_nothing_is_left_in_eval_mode() -> None:
    model = build_model(config_of("facebook/w2v-bert-2.0"))
    assert model.training
    assert {tensor.device.type for tensor in (*model.parameters(), *model.buffers())} == {"meta"}


def test_tied_weights_are_named_and_counted_once() -> None:
    spec = spec_of(build_model(config_of("openai-community/gpt2")), model_id="gpt2")
    tied = {parameter.name: parameter.tied_to for parameter in spec.parameters if parameter.tied_to}
    assert tied == {"lm_head.weight": "transformer.wte.weight"}
    untied = sum(p.numel for p in spec.parameters if p.name != "lm_head.weight")
    assert spec.num_parameters == untied == 124439808


def test_the_spec_describes_the_model() -> None:
    spec = spec_of(build_model(TINY_LLAMA | {"max_position_embeddings": 99}), model_id="me/tiny")
    assert (spec.id, spec.class_name, spec.config_class) == ("me/tiny", "LlamaForCausalLM", "LlamaConfig")
    assert (spec.kind, spec.max_positions, spec.vocab_size, spec.has_sequence) == ("dense", 99, 256, True)
    embedding = spec.parameters[0]
    assert (embedding.name, embedding.shape, embedding.dtype) == (
        "model.embed_tokens.weight",
        (256, 64),
        "float32",
    )
    vision = spec_of(build_model(config_of("google/vit-base-patch16-224")), model_id="vit")
    assert (vision.kind, vision.has_sequence, vision.vocab_size) == ("vision", False, None)


def test_positions_that_roberta_skips_are_not_counted() -> None:
    assert spec_of(build_model(config_of("FacebookAI/roberta-base")), model_id="r").max_positions == 512
    assert spec_of(build_model(config_of("google-bert/bert-base-uncased")), model_id="b").max_positions == 512


def test_frozen_parameters_are_not_trainable() -> None:
    spec = spec_of(build_model(config_of("openai/whisper-tiny")), model_id="whisper")
    assert spec.num_parameters - spec.trainable_parameters == 1500 * 384  # the encoder's sinusoids


def test_a_quantized_checkpoint_builds_with_a_note() -> None:
    model = build_model(config_of("Qwen/Qwen3-32B-FP8"))
    assert any("fp8" in note for note in notes_of(model))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_overrides_reach_nested_configs_and_leave_the_given_one_alone() -> None:
    config = config_of("google/gemma-3-4b-it")
    model: Any = build_model(config, overrides={"text_config": {"num_hidden_layers": 3}})
    assert len(model.model.language_model.layers) == 3
    assert len(model.model.vision_tower.encoder.layers) == 27
    assert config == config_of("google/gemma-3-4b-it")


@pytest.mark.parametrize(("dtype", "kept"), [(torch.float16, True), (torch.bfloat16, False)])
def test_modules_that_transformers_keeps_in_fp32_are_kept(dtype: torch.dtype, kept: bool) -> None:
    model = build_model(config_of("google-t5/t5-small"), dtype=dtype)
    outputs = {p.dtype for n, p in model.named_parameters() if ".wo." in n}
    assert outputs == ({torch.float32} if kept else {dtype})
    assert {p.dtype for n, p in model.named_parameters() if ".wi." in n} == {dtype}


def test_attention_falls_back_to_eager_only_with_a_note() -> None:
    sdpa = build_model(TINY_LLAMA)
    eager = build_model(TINY_LLAMA, attention="eager")
    assert (sdpa.config._attn_implementation, notes_of(sdpa)) == ("sdpa", ())
    assert (eager.config._attn_implementation, notes_of(eager)) == ("eager", ())
    assert any("eager" in note for note in notes_of(build_model(config_of("EleutherAI/gpt-j-6b"))))
    assert notes_of(build_model(config_of("state-spaces/mamba-2.8b-hf"))) == ()


def test_what_the_author_had_installed_does_not_matter() -> None:
    model = build_model(TINY_LLAMA | {"attn_implementation": "flash_attention_2"})
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": 10**6},
        {"num_hidden_layers": -1},
        {"num_hidden_layers": "many"},
        {"hidden_size": -64},
        {"hidden_size": float("nan")},
        {"hidden_size": 10**7, "vocab_size": 10**8},
        {"vocab_size": 10**15},
        {"num_attention_heads": 0},
        {"num_attention_heads": 7},
        {"num_labels": 10**9},
        {"hidden_act": "nope"},
        {"rope_scaling": {"rope_type": "nope"}},
        {"layer_types": ["full_attention"] * 9},
        {"torch_dtype": "float3"},
        {"text_config": 3},
        {"architectures": "LlamaForCausalLM"},
        {"architectures": [1]},
        {"model_type": None},
        {"model_type": 7},
        {"unheard_of": 10**40},
        {"unheard_of_layers": 10**5},
    ],
    ids=str,
)
def test_nonsense_is_refused_in_one_line(change: dict[str, Any]) -> None:
    with pytest.raises((InputError, UsageError)) as refusal:
        build_model(TINY_LLAMA | change)
    assert_one_line(str(refusal.value))


def test_a_constructor_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_plan.planner.model.build.guard.MAX_MODULES", 20)
    with pytest.raises(InputError, match="more than 20 modules"):
        build_model(TINY_LLAMA)


def test_a_config_cannot_reach_for_other_names_of_transformers() -> None:
    for name in ("Trainer", "os.system", "GPT2LMHeadModel"):
        model = build_model(TINY_LLAMA | {"architectures": [name]})
        assert type(model).__name__ == "LlamaForCausalLM"
        assert any(name in note for note in notes_of(model))


def modeling_modules() -> set[str]:
    return {name for name in sys.modules if name.startswith("transformers.models.") and ".modeling_" in name}


def test_no_other_models_code_is_imported() -> None:
    build_model(TINY_LLAMA)
    before = modeling_modules()
    build_model({**TINY_LLAMA, "model_type": "olmo", "architectures": ["OlmoForCausalLM"]})
    assert modeling_modules() - before <= {"transformers.models.olmo.modeling_olmo"}
    assert "transformers.models.olmo.modeling_olmo" in sys.modules


@pytest.mark.slow
def test_only_the_models_own_code_is_imported() -> None:
    """In an interpreter of its own."""
    script = (
        "import sys, json; from gpu_plan.planner.model.build.construct import build_model;"
        f"build_model(json.loads({json.dumps(TINY_LLAMA)!r}));"
        "print(sorted(m for m in sys.modules if m.startswith('transformers.models.') and '.modeling_' in m))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (
        done.stdout.strip() == "['transformers.models.auto.modeling_auto', 'transformers.models.llama.modeling_llama']"
    )


@pytest.mark.parametrize(
    ("model_id", "calls"), [("meta-llama/Llama-3.1-8B", 200_000), ("meta-llama/Llama-3.1-405B", 600_000)]
)
def test_building_is_little_work(model_id: str, calls: int) -> None:
    """Twice what was counted with transformers 5.23: nothing is built twice, and no weight is filled."""
    config = config_of(model_id)
    build_model(TINY_LLAMA)
    assert calls_of(lambda: build_model(config)) < calls


class TestFactory:
    def test_a_module_or_a_pair(self) -> None:
        module, inputs = from_factory(lambda: nn.Linear(3, 4))
        assert inputs is None
        assert module.weight.device.type == "meta"
        module, inputs = from_factory(lambda: (nn.Linear(3, 4), (torch.zeros(2, 3),)))
        assert isinstance(inputs, tuple)
        assert inputs[0].shape == (2, 3)

    @pytest.mark.parametrize(
        ("result", "message"),
        [(None, "NoneType"), ((nn.Linear(1, 1), 3), "dict or a tuple"), ([nn.Linear(1, 1)], "list")],
    )
    def test_anything_else_is_refused(self, result: Any, message: str) -> None:
        with pytest.raises(InputError, match=message) as refusal:
            from_factory(lambda: result)
        assert_one_line(str(refusal.value))

    def test_its_own_error_becomes_one_line(self) -> None:
        def broken() -> nn.Module:
            raise KeyError("line one\nline two")

        with pytest.raises(InputError, match=r"broken failed: KeyError") as refusal:
            from_factory(broken)
        assert_one_line(str(refusal.value))
