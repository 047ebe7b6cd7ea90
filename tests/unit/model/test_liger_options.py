"""--fused-loss and --set kernels.liger as words: what they mean, where they are refused, how a loop gets them."""

import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.kernels.liger import LIGER_MODELS, check_liger
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.training.reading import read_given
from gpu_plan.planner.options.training.workload import make_workload
from gpu_plan.planner.search.training.notes.liger import liger_notes, liger_words
from gpu_plan.planner.workload.training import Workload


def spec(model_type="llama", class_name="LlamaForCausalLM"):
    return ModelSpec(
        id="model",
        class_name=class_name,
        config_class="Config",
        model_type=model_type,
        kind="dense",
        parameters=(),
        num_parameters=0,
        trainable_parameters=0,
        max_positions=4096,
        vocab_size=128,
        hidden_size=64,
        has_sequence=True,
    )


def workload(words=(), settings=(), gpus="8xH100", of=None) -> Workload:
    given = read_given(dict(words), settings)
    return make_workload(given, True, parse_cluster(gpus), of or spec())


@pytest.mark.parametrize(
    ("words", "settings", "fused"),
    [
        ({}, (), ()),
        ({"fused-loss": "true"}, (), ("loss",)),
        ({}, ("kernels.liger=true",), ("layers", "loss")),
        ({"fused-loss": "false"}, ("kernels.liger=true",), ("layers",)),
        ({"fused-loss": "false"}, (), ()),
        ({}, ("kernels.liger=false",), ()),
    ],
)
def test_what_is_replaced(words, settings, fused):
    assert workload(words, settings).fused == fused


def test_where_the_value_came_from():
    assert dict(workload({"fused-loss": "true"}).basis)["fused_loss"] == "given"
    assert dict(workload().basis)["fused_loss"] == "default"


@pytest.mark.parametrize(
    ("model_type", "class_name", "fused", "message"),
    [
        ("gpt2", "GPT2LMHeadModel", ("loss",), "--fused-loss: Liger 0.8.5 has no kernels for GPT2LMHeadModel (gpt2)"),
        ("qwen3_moe", "Qwen3MoeForCausalLM", ("layers", "loss"), "Liger's fused experts are not in this version"),
        ("granite", "GraniteForCausalLM", ("loss",), "has no fused linear cross entropy for GraniteForCausalLM"),
        ("llama", "LlamaForSequenceClassification", ("loss",), "are not in this version"),
        ("mllama", "MllamaForConditionalGeneration", ("layers",), "--set kernels.liger: Liger's kernels for Mllama"),
        (None, "Net", ("loss",), "has no kernels for Net"),
    ],
)
def test_models_without_the_kernels(model_type, class_name, fused, message):
    with pytest.raises(UsageError) as refusal:
        check_liger(fused, model_type, class_name)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_nothing_asked_is_nothing_refused():
    check_liger((), "gpt2", "GPT2LMHeadModel")
    for model_type, known in LIGER_MODELS.items():
        if known.linear_loss:
            check_liger(("loss",), model_type, "XForCausalLM")


def test_a_cpu_has_no_triton():
    with pytest.raises(UsageError, match="need a GPU"):
        workload({"fused-loss": "true"}, gpus="2xcpu")


def test_how_a_loop_gets_them():
    trainer = workload({"stack": "trainer"}, ("kernels.liger=true",))
    assert liger_words(trainer) == ["--use_liger_kernel"]
    assert len(liger_notes(trainer)) == 1
    alone = workload({"stack": "trainer", "fused-loss": "true"})
    assert liger_words(alone)[2] == '{"rope": false, "rms_norm": false, "swiglu": false, "geglu": false}'
    own = liger_notes(workload({"fused-loss": "true"}))
    assert "_apply_liger_kernel_to_instance(model=model, rope=False" in own[1]
    assert liger_words(workload()) == []
    assert liger_notes(workload()) == ()
