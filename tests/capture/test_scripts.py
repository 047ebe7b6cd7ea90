"""Captured scripts against the same scripts run for real on a CPU: what was counted, and what the allocator did."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpu_plan.planner.capture.parent import capture
from gpu_plan.planner.capture.request import CaptureRequest, PlannedDevice
from gpu_plan.planner.trace.storage import load
from tests.support.replay_cpu import replayed, replayed_return
from tests.support.script_reference import real_run

HERE = Path(__file__).parent / "scripts"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CHECKPOINT = "CHECKPOINT"
"""In arguments: a folder with a tiny model's weights, made for the test."""
ENCODER = "ENCODER"
"""Likewise a tiny encoder's, with a tokenizer of a few words."""
CPU = PlannedDevice(name="CPU", total_bytes=2**34, capability_major=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    path: Path
    stack: str
    loop: str
    arguments: tuple[str, ...] = ()
    stored: bool = True
    """Whether sizes are compared: bitsandbytes computes with other kernels on a CPU, and counts packed elements."""
    peak: bool = True
    """Whether the peak is compared: oneDNN's convolutions copy operands in backward, which no GPU does."""

    needs: str = ""
    """What it imports and nobody has to have."""
    uncalled: int = 0
    """Parameters that nothing runs, such as a decoder's: the real run counts what is called."""

    def __str__(self) -> str:
        return " ".join((self.path.stem, *self.arguments))


def script(name: str, stack: str, loop: str | None = None, *arguments: str, folder: Path = HERE) -> Script:
    return Script(path=folder / f"{name}.py", stack=stack, loop=loop or stack, arguments=arguments)


QUICK = (script("plain_loop", "plain"),)
SLOW = (
    script("train", "accelerate", None, "--gradient_accumulation_steps", "2", folder=EXAMPLES),
    script("train", "accelerate", None, "--checkpointing", "full", "--optimizer", "sgd", folder=EXAMPLES),
    script("train_trainer", "trainer", "Trainer", "--gradient_accumulation_steps", "2", folder=EXAMPLES),
    script("sft", "trl", "SFTTrainer"),
    script("lightning_module", "plain", "lightning"),
    script("ddp_loop", "plain"),
    script("two_encoders", "plain"),
    replace(script("resnet", "plain", None, "--batch-size", "4"), peak=False),
    script("yaml_trainer", "trainer", "WeightedTrainer"),
    script("distil", "accelerate"),
    replace(script("qlora_trainer", "trainer", "Trainer", "--model", CHECKPOINT), stored=False),
    script("peft_loop", "accelerate", None, "--model_name_or_path", CHECKPOINT),
    replace(script("dit_loop", "accelerate"), needs="diffusers", uncalled=127_415, peak=False),
    # Its peak is oneDNN's: two copies of operands in a convolution's backward, which no GPU makes.
    replace(script("unet_loop", "accelerate"), needs="diffusers", peak=False),
    replace(script("unet_lora", "accelerate"), needs="diffusers"),
    replace(script("sentence_pairs", "trainer", "SentenceTransformerTrainer", ENCODER), needs="sentence_transformers"),
    replace(
        script("sentence_pairs", "trainer", "SentenceTransformerTrainer", ENCODER, "matryoshka"),
        needs="sentence_transformers",
    ),
)


def _checkpoint(folder: Path) -> str:
    from transformers import AutoConfig, AutoModelForCausalLM

    target = folder / "checkpoint"
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(EXAMPLES / "tiny-llama")).save_pretrained(target)
    return str(target)


def _encoder(folder: Path) -> str:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    target = folder / "encoder"
    words = {word: number for number, word in enumerate(("[PAD]", "[CLS]", "[SEP]", "a", "b"))}
    kind = Tokenizer(models.WordLevel(words, unk_token="a"))
    kind.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=kind, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", model_max_length=64
    ).save_pretrained(target)
    config = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    BertModel(config).save_pretrained(target)
    return str(target)


@pytest.mark.parametrize("case", [*QUICK, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)], ids=str)
def test_captured_equals_real(case: Script, tmp_path: Path) -> None:
    if case.needs:
        pytest.importorskip(case.needs, reason=f"pip install --no-deps {case.needs}")
    made = {CHECKPOINT: _checkpoint, ENCODER: _encoder}
    arguments = tuple(made[word](tmp_path) if word in made else word for word in case.arguments)
    real = real_run(case.path, arguments, tmp_path)
    request = CaptureRequest(
        script=str(case.path), arguments=arguments, working_directory=str(tmp_path), device=CPU, seconds=1200.0
    )
    before = {path: path.stat().st_mtime_ns for path in case.path.parent.iterdir()}
    outcome, content = capture(request)
    facts = outcome.facts
    assert facts is not None
    assert (facts.stack, facts.loop) == (case.stack, case.loop)
    assert facts.spec["num_parameters"] == real["parameters"] + case.uncalled or not case.stored
    assert facts.spec["trainable_parameters"] == real["trainable"]
    assert sum(made.state_bytes for made in facts.optimizers) == real["state_bytes"]
    assert facts.accumulation_steps == real["accumulation"]
    shapes = {name: text[: text.index("]") + 1] for name, text in facts.batch.items()}
    assert shapes == {name: str(shape) for name, shape in real["inputs"].items()}
    trace = load(content)
    figures = replayed(trace, facts.micro_batch)
    if case.stored:
        returned = replayed_return(trace, facts.micro_batch)
        assert (returned, figures.backward_end) == (real["forward_end"], real["backward_end"])
    if case.stored and case.peak:
        assert figures.peak == real["peak"]
    assert {path: path.stat().st_mtime_ns for path in case.path.parent.iterdir()} == before


@pytest.mark.slow
def test_the_type_of_the_weights_is_read_in_their_headers(tmp_path: Path) -> None:
    """A checkpoint whose config names no type is loaded in that of its weights; a compiled model is said to be one."""
    import json

    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    target = tmp_path / "checkpoint"
    config = AutoConfig.from_pretrained(EXAMPLES / "tiny-llama")
    AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(target)
    values = json.loads((target / "config.json").read_text())
    for key in ("dtype", "torch_dtype"):
        values.pop(key, None)
    (target / "config.json").write_text(json.dumps(values))
    path = tmp_path / "train.py"
    path.write_text(
        "import torch\nfrom transformers import AutoModelForCausalLM\n"
        f"model = torch.compile(AutoModelForCausalLM.from_pretrained({str(target)!r}).cuda().train())\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "ids = torch.ones(2, 16, dtype=torch.long).cuda()\n"
        "model(input_ids=ids, labels=ids).loss.backward()\noptimizer.step()\n"
    )
    device = PlannedDevice(name="NVIDIA H100", total_bytes=85 * 10**9, capability_major=9, sm_count=132)
    outcome, _ = capture(
        CaptureRequest(script=str(path), working_directory=str(tmp_path), device=device, seconds=1200.0)
    )
    facts = outcome.facts
    assert facts is not None
    assert (facts.precision, facts.compiled) == ("bf16", True)
    assert any("compiles its model" in note for note in facts.notes)
