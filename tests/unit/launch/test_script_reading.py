"""What a training script's text tells: its loop, its options, what it would refuse, what it asks of the plan."""

import json
import textwrap
from pathlib import Path

import pytest

from gpu_plan.executor.script.accelerator import accelerator_use
from gpu_plan.executor.script.check_arguments import rejected
from gpu_plan.executor.script.loop import loop_of
from gpu_plan.executor.script.options import options_of
from gpu_plan.executor.script.plan_use import asks_for
from gpu_plan.executor.script.read import Script, read_script
from gpu_plan.planner.errors import InputError, UnreachableError


@pytest.fixture
def read(tmp_path: Path):
    def write(source: str, name: str = "train.py") -> Script:
        path = tmp_path / name
        path.write_text(textwrap.dedent(source))
        return read_script(path)

    return write


def notebook(*cells: str) -> str:
    made = [{"cell_type": "markdown", "source": ["# not code ("]}]
    made += [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": made, "nbformat": 4})


@pytest.mark.parametrize(
    ("source", "loop"),
    [
        ("from accelerate import Accelerator\na = Accelerator()\na.backward(loss)", "accelerate"),
        ("import accelerate\na = accelerate.Accelerator()", "accelerate"),
        ("from transformers import Trainer\nTrainer(model).train()", "trainer"),
        ("from trl import SFTTrainer as T, SFTTrainer\nSFTTrainer(model).train()", "trainer"),
        ("from transformers import Trainer\nclass Mine(Trainer):\n    pass\nMine().train()", "trainer"),
        ("import lightning as L\nL.Trainer().fit(m)", "lightning"),
        ("from pytorch_lightning import LightningModule\nclass M(LightningModule): ...", "lightning"),
        ("loss = model(x)\nloss.backward()\noptimizer.step()", "plain"),
        ("class Trainer: ...\nTrainer()\nloss.backward()", "plain"),
        ("from common import main\nmain()", "unknown"),
    ],
)
def test_the_loop(read, source: str, loop: str) -> None:
    assert loop_of(read(source)) == loop


def test_a_syntax_error_is_named_by_its_line(read, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"train\.py:2: the script does not parse: .*"):
        read("import torch\nmodel = (\n")
    with pytest.raises(UnreachableError, match="there is no script"):
        read_script(tmp_path / "absent.py")
    with pytest.raises(InputError, match="is a folder"):
        read_script(tmp_path)
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"is not Python source|does not parse"):
        read_script(tmp_path / "binary.py")


def test_a_notebook_is_its_code_cells(read) -> None:
    source = notebook(
        "%pip install x\nif True:\n    !ls\nfrom accelerate import Accelerator", "%%bash\nrm (", "Accelerator()"
    )
    script = read(source, "a.ipynb")
    assert script.is_notebook
    assert loop_of(script) == "accelerate"
    with pytest.raises(InputError, match=r"b\.ipynb cell 2 line 2: the script does not parse"):
        read(notebook("x = 1\n", "y = 2\nz = ("), "b.ipynb")
    with pytest.raises(InputError, match="is not a notebook"):
        read("[]", "c.ipynb")


ARGPARSE = """
    import argparse

    def arguments():
        parser = argparse.ArgumentParser(description="x")
        parser.add_argument("--per-device-batch-size", "-b", type=int, default=8, help="per GPU")
        parser.add_argument("--lr", type=float, required=True)
        parser.add_argument("--precision", choices=["no", "bf16"])
        group = parser.add_argument_group("more")
        group.add_argument("--compile", action=argparse.BooleanOptionalAction)
        group.add_argument("--amp", action="store_true")
        group.add_argument("files", nargs="*")
        return parser.parse_args()
"""


def test_options_of_argparse(read) -> None:
    options = options_of(read(ARGPARSE)).options
    assert options["-b"] is options["--per-device-batch-size"]
    assert options["-b"].word == "per_device_batch_size"
    assert options["--precision"].choices == ("no", "bf16")
    assert (options["--compile"].takes, options["--compile"].off) == ("flag", "--no-compile")
    assert options["--amp"].takes == "flag"
    assert "files" not in options


def test_options_of_click_and_typer(read) -> None:
    click = options_of(
        read("""
        import click

        @click.command()
        @click.option("--batch-size", "-b", default=8, help="samples")
        @click.option("--bf16/--no-bf16", default=False)
        @click.option("--mode", type=click.Choice(["a", "b"]))
        def main(batch_size, bf16, mode): ...
        """)
    )
    assert click.options["-b"].name == "--batch-size"
    assert (click.options["--bf16"].takes, click.options["--no-bf16"].off) == ("flag", "--no-bf16")
    assert click.options["--mode"].choices == ("a", "b")
    assert not click.commands
    typer = options_of(
        read("""
        from typing import Annotated
        import typer

        def main(model: str, size: int = 8, bf16: bool = False, lr: Annotated[float, typer.Option("--rate")] = 1.0):
            ...

        typer.run(main)
        """)
    )
    assert set(typer.options) == {"--size", "--bf16", "--no-bf16", "--rate"}


def test_options_of_dataclasses_and_the_librarys_arguments(read) -> None:
    found = options_of(
        read("""
        from dataclasses import dataclass, field
        from transformers import HfArgumentParser, TrainingArguments

        @dataclass
        class Data:
            block_size: int = 128
            shuffle: bool = field(default=True, metadata={"help": "mix"})

        @dataclass
        class Mine(TrainingArguments):
            extra: str | None = None

        parser = HfArgumentParser((Data, Mine))
        """)
    )
    assert found.training_arguments == "TrainingArguments"
    assert found.options["--block-size"].name == "--block_size"
    assert found.options["--shuffle"].takes == "boolean"
    assert found.options["--per_device_train_batch_size"].takes == "value"
    assert found.options["--extra"].takes == "value"
    trl = options_of(read("from trl import SFTConfig, TrlParser\np = TrlParser((SFTConfig,))"))
    assert trl.training_arguments == "SFTConfig"
    assert "--max_length" in trl.options
    assert (
        options_of(read("from transformers import TrainingArguments\nTrainingArguments()")).training_arguments is None
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--lr", "1"], None),
        (["--lr", "1", "--per", "4"], None),
        (["-b4", "--lr=1", "a.txt", "b.txt"], None),
        (["--lr", "1", "--no-compile"], None),
        (["--help"], None),
        (["--lrr", "1", "--lr", "1"], "takes no argument --lrr. Did you mean --lr?"),
        (["--lr", "fast"], "invalid float value: 'fast'"),
        (["--lr", "1", "--precision", "fp8"], "invalid choice: 'fp8'"),
        (["--lr"], "expected one argument"),
        ([], "the following arguments are required: --lr"),
    ],
)
def test_arguments_are_judged_as_argparse_will(read, words: list[str], reason: str | None) -> None:
    found = rejected(read(ARGPARSE), words)
    assert found is None if reason is None else found is not None and reason in found
    assert found is None or "\n" not in found


@pytest.mark.parametrize(
    "change",
    [
        ("parser.parse_args()", "parser.parse_known_args()[0]"),
        ("parser.parse_args()", "parser.parse_args([])"),
        ("return parser", "parser.add_subparsers()\n        return parser"),
        ("return parser", "more_arguments(parser)\n        return parser"),
        ("return parser", "parser.add_argument(*spellings())\n        return parser"),
        ("return parser", "for n in names: parser.add_argument(f'--{n}')\n        return parser"),
        ("import argparse", "import argparse, sys\n    sys.argv = sys.argv[:1]"),
        ('description="x"', "parents=[base()]"),
    ],
)
def test_a_parser_that_the_text_does_not_show_whole_is_not_judged(read, change: tuple[str, str]) -> None:
    assert change[0] in ARGPARSE
    assert rejected(read(ARGPARSE.replace(*change)), ["--lr", "1", "--anything"]) is None
    assert rejected(read(ARGPARSE), ["--lr", "1", "--anything"]) is not None


def test_what_is_asked_of_the_plan(read) -> None:
    script = read("""
        import os
        from gpu_plan import current_plan
        plan = current_plan()
        size = plan.micro_batch_size or 4
        other.sequence_length
        checkpointing = current_plan().checkpointing
        steps = os.environ.get("GPU_PLAN_GRADIENT_ACCUMULATION_STEPS")
        """)
    assert asks_for(script) == {"micro_batch_size", "checkpointing", "gradient_accumulation_steps"}
    assert not asks_for(read("plan = current_plan()\nplan.micro_batch_size"))


def test_what_the_accelerator_is_given(read) -> None:
    script = read("a = Accelerator(mixed_precision='no', dataloader_config=make())\nwith a.accumulate(m): ...")
    use = accelerator_use(script)
    assert (use.line, use.accumulates) == (1, True)
    assert use.arguments == {"mixed_precision": "no", "dataloader_config": None}
