"""What would train otherwise than planned: clipping and the effective batch, known before a launch."""

import json
from pathlib import Path

import pytest

from gpu_plan.executor.job import Job
from gpu_plan.executor.launch.deepspeed.config import deepspeed_config
from gpu_plan.executor.launch.engines.registry import ENGINES, find_engine
from gpu_plan.executor.launch.export import export
from gpu_plan.executor.launch.prepare import Drawn, check, draw
from gpu_plan.executor.script.read import read_script
from gpu_plan.planner.errors import PreflightError
from tests.support.launch_plans import job, saved

LOOP = """
import argparse
from accelerate import Accelerator
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--max-grad-norm", type=float, default=0.25)
args = parser.parse_args()
LIMIT = 0.75
accelerator = Accelerator(gradient_accumulation_steps=2)
for batch in accelerator.prepare(DataLoader(data, batch_size=4)):
    with accelerator.accumulate(model):
        accelerator.backward(model(**batch).loss)
        {clip}
        optimizer.step()
"""
PLAIN = """
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
model = DistributedDataParallel(model)
STEPS = {steps}
for i, batch in enumerate(DataLoader(data, batch_size={micro}, shuffle=True)):
    loss(batch).backward()
    if (i + 1) % STEPS == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
TRAINER = """
from transformers import Trainer, TrainingArguments
Trainer(model, TrainingArguments("out", gradient_accumulation_steps=2, per_device_train_batch_size=4)).train()
"""
CLIP = "accelerator.clip_grad_norm_(model.parameters(), {})"


def drawn(folder: Path, text: str, *words: str, observed: bool = True, **plan: object) -> Drawn:
    script = folder / "train.py"
    script.write_text(text)
    made = saved(**plan)  # type: ignore[arg-type]
    return draw(job(made, script, *words), read_script(script), folder=folder, observed=observed)


def clipped(found: Drawn) -> object:
    return deepspeed_config(found.target)["gradient_clipping"]


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3"])
def test_a_script_that_does_not_clip_is_not_clipped(tmp_path: Path, strategy: str) -> None:
    """Without the key, or with auto, DeepSpeed and Accelerate clip to 1.0."""
    assert clipped(drawn(tmp_path, LOOP.format(clip=""), strategy=strategy)) == 0.0


@pytest.mark.parametrize(
    ("norm", "words", "expected"),
    [
        ("0.5", (), 0.5),
        ("max_norm=0.5", (), 0.5),
        ("LIMIT", (), 0.75),
        ("args.max_grad_norm", (), 0.25),
        ("args.max_grad_norm", ("--max-grad-norm", "2"), 2.0),
        ("args.max_grad_norm", ("--max-grad-norm=0",), 0.0),
    ],
)
def test_the_norm_in_the_scripts_text_reaches_deepspeed(
    tmp_path: Path, norm: str, words: tuple[str, ...], expected: float
) -> None:
    found = drawn(tmp_path, LOOP.format(clip=CLIP.format(norm)), *words, strategy="zero2")
    assert clipped(found) == expected
    assert not found.refused


def test_a_captured_norm_is_the_one_and_the_users_beats_it(tmp_path: Path) -> None:
    text = LOOP.format(clip=CLIP.format("norms[epoch]"))
    assert clipped(drawn(tmp_path, text, strategy="zero3", max_grad_norm=0.5)) == 0.5
    given = drawn(tmp_path, text, strategy="zero3", max_grad_norm=0.125, settings={"clip.max_norm": "0.125"})
    assert clipped(given) == 0.125
    assert given.target.arguments[-2:] == ("--max-grad-norm", "0.125")
    off = drawn(tmp_path, LOOP.format(clip=CLIP.format("1.0")), strategy="zero3", max_grad_norm=0.0)
    assert clipped(off) == 0.0, "captured: the script did not come by its call"


@pytest.mark.parametrize(
    ("clip", "said"),
    [
        (CLIP.format("norms[epoch]"), "train.py:13 clips gradients to a norm that the script's text does not tell"),
        (f"{CLIP.format('1.0')}; {CLIP.format('2.0')}", "--set clip.max_norm=1.0"),
        ("accelerator.clip_grad_value_(model.parameters(), 1.0)", "clips gradients by value, which DeepSpeed cannot"),
    ],
)
def test_what_deepspeed_cannot_be_told_is_refused(tmp_path: Path, clip: str, said: str) -> None:
    found = drawn(tmp_path, LOOP.format(clip=clip), strategy="zero2")
    assert len(found.refused) == 1
    assert said in found.refused[0]
    assert not drawn(tmp_path, LOOP.format(clip=clip), strategy="fsdp").refused, "there the script clips itself"


def test_a_norm_that_only_the_script_can_apply_is_not_passed_over(tmp_path: Path) -> None:
    settings = {"clip.max_norm": "0.5"}
    assert not drawn(tmp_path, LOOP.format(clip=""), strategy="zero2", max_grad_norm=0.5, settings=settings).refused
    text = LOOP.replace("--max-grad-norm", "--unrelated")
    for clip, does in (("", "does not clip"), (CLIP.format("1.0"), "clips to 1")):
        (line,) = drawn(tmp_path, text.format(clip=clip), strategy="ddp", max_grad_norm=0.5, settings=settings).refused
        assert "--set clip.max_norm=0.5" in line
        assert does in line
    same = text.format(clip=CLIP.format("0.5"))
    assert not drawn(tmp_path, same, strategy="ddp", max_grad_norm=0.5, settings=settings).refused
    (line,) = drawn(tmp_path, TRAINER, strategy="ddp", max_grad_norm=0.5, settings=settings).refused
    assert "write max_grad_norm=0.5 there" in line


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("norm", [None, 0.0, 0.5])
def test_every_engine_writes_that_norm_and_no_other(tmp_path: Path, engine: str, norm: float | None) -> None:
    found = drawn(tmp_path, LOOP.format(clip=""), strategy="zero2", max_grad_norm=norm)
    files = find_engine(engine)(found.target).files
    assert json.loads(files["deepspeed.json"])["gradient_clipping"] == (norm or 0.0)
    assert not any("clip" in text for name, text in files.items() if name != "deepspeed.json")


def test_accumulation_and_micro_batch_that_differ_are_refused_with_both_numbers(tmp_path: Path) -> None:
    """Accumulation 1 in the plan and 2 in the script: 64 samples would make a step where 32 are planned."""
    found = drawn(tmp_path, PLAIN.format(steps=2, micro=4), strategy="ddp", micro=4, steps=1)
    (line,) = found.refused
    assert "64 samples would make an optimizer step, 32 are planned" in line
    assert "micro batch 4 and accumulation 2, the plan 4 and 1" in line
    assert "--micro-batch 4 --grad-accum 2" in line
    (line,) = drawn(tmp_path, PLAIN.format(steps=1, micro=8), strategy="ddp", micro=4, steps=1).refused
    assert "micro batch 8 and accumulation 1, the plan 4 and 1" in line
    with pytest.raises(PreflightError, match="--allow-deviation runs it as it is"):
        check(found, job(saved(), tmp_path / "train.py"))
    allowed = check(found, job(saved(), tmp_path / "train.py", allow_deviation=True))
    assert allowed.not_applied[0] == found.refused[0]


def test_what_can_be_set_is_set_and_what_agrees_is_not_refused(tmp_path: Path) -> None:
    assert not drawn(tmp_path, PLAIN.format(steps=2, micro=4), strategy="ddp", micro=4, steps=2).refused
    assert not drawn(tmp_path, PLAIN.format(steps=1, micro=4), strategy="ddp", micro=4, steps=1).refused
    for strategy in ("ddp", "zero2"):
        found = drawn(tmp_path, LOOP.format(clip=""), strategy=strategy, micro=8, steps=1)
        assert not found.refused, "the loader is rebuilt, the environment beats the Accelerator's own 2"
        assert found.set_inside == {"micro_batch_size"}
    found = drawn(tmp_path, TRAINER, strategy="ddp", micro=8, steps=1)
    assert not found.refused
    assert found.set_inside == {"micro_batch_size", "gradient_accumulation_steps"}
    assert "micro batch 8 and 1 accumulation steps" in found.notes[0]
    (line,) = drawn(tmp_path, TRAINER, strategy="ddp", micro=4, steps=1, observed=False).refused
    assert "micro batch 4 and accumulation 2, the plan 4 and 1" in line, "exported files run without the runner"


def test_without_accumulate_every_backward_pass_is_a_step_under_deepspeed_too(tmp_path: Path) -> None:
    text = LOOP.format(clip="").replace("with accelerator.accumulate(model):", "if True:")
    for strategy in ("ddp", "zero2"):
        (line,) = drawn(tmp_path, text, strategy=strategy, micro=4, steps=2).refused
        assert "accumulation 1, the plan 4 and 2" in line
        assert not drawn(tmp_path, text, strategy=strategy, micro=4, steps=1).refused


def test_a_plugin_beats_the_environment(tmp_path: Path) -> None:
    text = LOOP.format(clip="").replace(
        "gradient_accumulation_steps=2", "gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=3)"
    )
    (line,) = drawn(tmp_path, text, strategy="ddp", micro=4, steps=1).refused
    assert "accumulation 3, the plan 4 and 1" in line
    assert not drawn(tmp_path, text, strategy="zero2", micro=4, steps=1).refused, "DeepSpeed's file beats the plugin"


def test_what_was_captured_is_known_whatever_the_text(tmp_path: Path) -> None:
    own = (("micro_batch", 4), ("grad_accum", 2), ("seq_len", 2048))
    text = "import torch\nfrom helpers import train\nloss.backward()\ntrain()\n"
    assert not drawn(tmp_path, text, strategy="ddp", micro=4, steps=2, script=own).refused
    found = drawn(tmp_path, text, strategy="ddp", micro=4, steps=1, script=own)
    assert "micro batch 4 and accumulation 2" in found.refused[0]
    assert not any("sequence length" in line for line in (*found.not_applied, *found.notes)), "the data has it"


def test_a_length_of_the_data_is_not_called_not_applied(tmp_path: Path) -> None:
    found = drawn(tmp_path, PLAIN.format(steps=2, micro=4), strategy="ddp")
    assert not any("sequence length" in line for line in found.not_applied)
    assert any(line.startswith("the data is taken to have the planned length") for line in found.notes)
    other = drawn(tmp_path, PLAIN.format(steps=2, micro=4), strategy="ddp", script=(("seq_len", 512),))
    assert "sequence length 2048: the script's data has 512" in other.not_applied


def test_the_users_own_words_are_refused_where_they_change_the_batch(tmp_path: Path) -> None:
    text = LOOP.format(clip="").replace(
        '"--max-grad-norm"', '"--batch-size", type=int, default=4)\nparser.add_argument("--max-grad-norm"'
    )
    assert not drawn(tmp_path, text, "--batch-size", "4", strategy="ddp").refused
    (line,) = drawn(tmp_path, text, "--batch-size", "8", strategy="ddp").refused
    assert "128 samples would make an optimizer step, 64 are planned" in line


def test_an_export_without_a_script_says_that_it_does_not_clip(tmp_path: Path) -> None:
    def said(**plan: object) -> bool:
        made = Job(saved=saved("zero2", **plan), script=tmp_path / "train.py", working_directory=tmp_path)  # type: ignore[arg-type]
        launch = export(made, None, engine="accelerate", folder=tmp_path)
        return any("DeepSpeed clips by its own file alone" in line for line in launch.not_applied)

    assert said()
    assert not said(max_grad_norm=0.5)
    assert not said(stack="trainer"), "the Trainer says it itself"
