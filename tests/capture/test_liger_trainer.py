"""A Trainer's `use_liger_kernel`: mirrors stand where Liger would put its kernels, in scripts and in recipes."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from gpu_plan.planner.capture.answers.trainers.liger import liger_mirrored
from gpu_plan.planner.capture.parent import capture
from gpu_plan.planner.capture.request import CaptureRequest, PlannedDevice
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.trace.storage import load

GPU = PlannedDevice(name="GPU", total_bytes=2**36, capability_major=9, sm_count=132)
CPU = PlannedDevice(name="CPU", total_bytes=2**34, capability_major=None)
LAYERS_ALONE = {"fused_linear_cross_entropy": False}
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 512}  # fmt: skip


def patched(kind: str = "llama", kernels: dict[str, bool] | None = None, device: PlannedDevice = GPU, of=None):
    """Names of the modules whose forward is another one, and whether the model's own is."""
    with torch.device("meta"):
        model = (of or AutoModelForCausalLM).from_config(AutoConfig.for_model(kind, **SIZES))
    with contextlib.ExitStack() as stack:
        module = SimpleNamespace()
        liger_mirrored(device, stack)(module)
        module.apply_liger_kernel(model, kernels)
        found = [name for name, part in model.named_modules() if name and "forward" in vars(part)]
        return found, "forward" in vars(model)


def test_norms_and_products_of_every_layer_are_replaced():
    found, whole = patched()
    assert len(found) == 2 * 3 + 1  # two norms and a gated product each, and the last norm
    assert whole


def test_a_trainer_with_a_loss_of_its_own_keeps_the_model_s_forward():
    found, whole = patched(kernels=LAYERS_ALONE)
    assert (len(found), whole) == (7, False)


def test_what_liger_does_not_know_stays_as_it_is():
    assert patched("gpt2") == ([], False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"device": CPU}, "need a GPU"),
        ({"kind": "mixtral"}, "MixtralForCausalLM are not in this version"),
        ({"kernels": {"rope": False}}, "liger_kernel_config: rope"),
        ({"of": AutoModelForSequenceClassification}, "fails: liger_kernel_config="),
    ],
)
def test_what_fails_is_one_line(words, said):
    with pytest.raises(UsageError, match=said):
        patched(**words)


SCRIPT = """
import sys
from datasets import Dataset
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments
sizes = %r
model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **sizes))
rows = Dataset.from_dict({"input_ids": [[1] * 96] * 8, "labels": [[1] * 96] * 8})
arguments = TrainingArguments("out", per_device_train_batch_size=4, max_steps=1, bf16=True, report_to="none",
                              use_liger_kernel=sys.argv[1] == "yes")
Trainer(model=model, args=arguments, train_dataset=rows).train()
"""


@pytest.mark.slow
def test_a_script_s_logits_never_stand(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT % SIZES)
    shapes, products = {}, {}
    for word in ("no", "yes"):
        request = CaptureRequest(
            script=str(script), arguments=(word,), working_directory=str(tmp_path), device=GPU, seconds=600.0
        )
        outcome, content = capture(request)
        assert outcome.facts is not None, outcome.message
        trace = load(content)
        shapes[word] = int(trace.tensor_bytes(4).max())
        products[word] = {trace.operator_names[index] for index in trace.tensor_operator}
    logits = 4 * 96 * 512
    assert shapes["no"] >= 4 * logits  # in fp32
    assert shapes["yes"] < 2 * logits
    assert "silu" in products["no"]
    assert "silu" not in products["yes"]
