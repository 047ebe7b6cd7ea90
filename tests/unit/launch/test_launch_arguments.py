"""How a plan's values reach a script, and what is said where they do not."""

import json
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.executor import names
from gpu_plan.executor.job import Job
from gpu_plan.executor.launch.environment import device_environment
from gpu_plan.executor.launch.export import export
from gpu_plan.executor.launch.prepare import Drawn, draw, prepare
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.executor.script.read import read_script
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.workload.training import Attention, Optimizer
from tests.support.launch_plans import job, saved

LOOP = "from accelerate import Accelerator\na = Accelerator({})\nwith a.accumulate(m):\n    pass\n"
TRAINER = """
    from dataclasses import dataclass
    from transformers import HfArgumentParser, Trainer, TrainingArguments

    @dataclass
    class Data:
        block_size: int = 128

    parser = HfArgumentParser((Data, TrainingArguments))
    Trainer(args=parser.parse_args_into_dataclasses()[1]).train()
"""
CLI = """
    import argparse
    from accelerate import Accelerator
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, help={help!r})
    parser.add_argument("--grad-accum", type=int)
    parser.add_argument("--seq-len", type=int)
    parser.add_argument("--mixed_precision", choices=["no", "bf16"])
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--lr", type=float)
    args = parser.parse_args()
    a = Accelerator()
    a.accumulate(m)
"""


def drawn(folder: Path, source: str, *arguments: str, resume_from: Path | None = None, **plan: object) -> Drawn:
    script = folder / "train.py"
    script.write_text(textwrap.dedent(source))
    strategy, gpus = plan.pop("strategy", "fsdp"), plan.pop("gpus", "8xH100")
    made = job(saved(strategy, gpus, **plan), script, *arguments)  # type: ignore[arg-type]
    return draw(made, read_script(script), folder=folder / "run", resume_from=resume_from)


def cli(help: str = "samples") -> str:
    return CLI.format(help=help)


def test_options_of_the_script_are_given_the_plans_values(tmp_path: Path) -> None:
    found = drawn(tmp_path, cli(), "--lr", "3e-4", checkpointing="full")
    assert found.target.arguments == (
        *("--batch-size", "4", "--grad-accum", "2", "--seq-len", "2048", "--mixed_precision", "bf16"),
        *("--gradient-checkpointing", "--lr", "3e-4"),
    )
    assert found.not_applied == ()
    assert not found.rebatches
    assert not found.target.wrapper_checkpoints, "the script checkpoints: Accelerate's wrapper must not as well"


@pytest.mark.parametrize("words", [("--batch-size", "16"), ("--batch-size=16",), ("--batch", "16")])
def test_the_users_own_arguments_win(tmp_path: Path, words: tuple[str, ...]) -> None:
    found = drawn(tmp_path, cli(), *words, strategy="zero2")
    assert found.target.arguments[-len(words) :] == words
    assert sum(word.startswith("--batch") for word in found.target.arguments) == 1
    assert any("micro batch 4: your own --batch" in line for line in found.not_applied)
    assert "ACCELERATE_GRADIENT_ACCUMULATION_STEPS" not in found.target.environment
    assert not found.rebatches


def test_the_same_value_from_the_user_is_no_difference(tmp_path: Path) -> None:
    assert drawn(tmp_path, cli(), "--batch-size", "4").not_applied == ()


def test_a_captured_length_is_the_datas_and_cuts_nothing(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(cli()))
    plan = saved("fsdp", "8xH100")
    seen = replace(plan, workload={**plan.workload, "basis": {**plan.workload["basis"], "seq_len": "captured"}})  # type: ignore[dict-item]
    found = draw(job(seen, script), read_script(script), folder=tmp_path / "run", resume_from=None)
    assert "--seq-len" not in found.target.arguments


def test_a_batch_of_all_ranks_is_not_taken_for_one_ranks(tmp_path: Path) -> None:
    found = drawn(tmp_path, cli("total batch size of all GPUs"))
    assert "--batch-size" not in found.target.arguments
    assert found.rebatches


def test_a_loop_that_asks_nobody_is_rebatched_from_inside(tmp_path: Path) -> None:
    found = drawn(tmp_path, LOOP.format(""), strategy="ddp")
    assert found.target.arguments == ()
    assert found.rebatches
    assert "rebuilt with 4" in found.notes[0]
    assert found.not_applied == ()
    assert "sequence length 2048: the script has no option for it" in found.notes[1]
    asking = (
        LOOP.format("")
        + "from gpu_plan import current_plan\np = current_plan()\np.micro_batch_size\np.sequence_length\n"
    )
    found = drawn(tmp_path, asking, strategy="ddp")
    assert not found.rebatches
    assert found.not_applied == ()


def test_the_trainer_gets_its_own_flags(tmp_path: Path) -> None:
    found = drawn(tmp_path, TRAINER, checkpointing="full", settings={"checkpoint.every": "2"})
    words = found.target.arguments
    pairs = dict(zip(words[::2], words[1::2], strict=True))
    assert pairs == {
        "--per_device_train_batch_size": "4",
        "--gradient_accumulation_steps": "2",
        "--block_size": "2048",
        "--bf16": "true",
        "--gradient_checkpointing": "true",
        "--gradient_checkpointing_kwargs": '{"every_n_layers": 2}',
        "--optim": "adamw_torch",
    }
    assert "ACCELERATE_GRADIENT_ACCUMULATION_STEPS" not in found.target.environment, "the Trainer accumulates itself"
    assert not found.rebatches


def test_the_trainer_on_a_cpu(tmp_path: Path) -> None:
    joined = drawn(tmp_path, TRAINER, strategy="ddp", gpus="2xcpu").target
    assert "--use_cpu" in joined.arguments
    sharded = drawn(tmp_path, TRAINER, strategy="fsdp", gpus="2xcpu").target
    assert "--use_cpu" not in sharded.arguments, "with it, Accelerate would run DDP"
    assert sharded.environment[names.CPU_RANKS] == "1"


def test_trl_is_told_what_it_would_decide_itself(tmp_path: Path) -> None:
    source = "from trl import SFTConfig, SFTTrainer, TrlParser\np = TrlParser((SFTConfig,))\nSFTTrainer(m)\n"
    words = drawn(tmp_path, source, precision="fp32").target.arguments
    pairs = dict(zip(words[::2], words[1::2], strict=True))
    assert (pairs["--bf16"], pairs["--fp16"], pairs["--gradient_checkpointing"]) == ("false", "false", "false")
    assert pairs["--max_length"] == "2048"


def test_resuming_is_told_too(tmp_path: Path) -> None:
    words = drawn(tmp_path, TRAINER, resume_from=Path("/run/checkpoint-2")).target.arguments
    assert words[words.index("--resume_from_checkpoint") + 1] == "/run/checkpoint-2"


@pytest.mark.parametrize(
    ("given", "plan", "line"),
    [
        ("mixed_precision='no'", {}, "precision bf16-mixed: Accelerator(mixed_precision=...) at train.py:2 wins"),
        ("gradient_accumulation_plugin=p", {}, "2 accumulation steps: the gradient_accumulation_plugin at train.py:2"),
        ("fsdp_plugin=p", {}, "the launch files' settings of fsdp: the fsdp_plugin at train.py:2 wins"),
        ("dataloader_config=c", {"settings": {"data.even_batches": "false"}}, "even_batches: the dataloader_config"),
        ("", {"precision": "bf16"}, "pure bf16: the script has to load its model in bfloat16"),
        ("", {"checkpointing": "selective"}, "selective checkpointing: the script switches it on"),
        ("", {"settings": {"ddp.gradient_as_bucket_view": "true"}, "strategy": "ddp"}, "DistributedDataParallelKwargs"),
        ("", {"settings": {"dtype.reduce": "float32"}}, "MixedPrecisionPolicy"),
    ],
)
def test_what_the_script_overrides_or_must_do_itself_is_said(
    tmp_path: Path, given: str, plan: dict[str, object], line: str
) -> None:
    assert any(line in said for said in drawn(tmp_path, LOOP.format(given), **plan).not_applied)
    silent = drawn(tmp_path, LOOP.format(""), strategy=plan.get("strategy", "fsdp"))
    assert not any(line in said for said in silent.not_applied)


def test_a_loop_without_accelerate_wraps_and_casts_itself(tmp_path: Path) -> None:
    bare = drawn(tmp_path, "import torch\nloss.backward()\n", strategy="ddp")
    assert any("runs a plain loop of its own that never wraps its model" in line for line in bare.refused)
    assert any(line.startswith("precision bf16-mixed: the script's own loop") for line in bare.not_applied)
    own = "import torch\nmodel = torch.nn.parallel.DistributedDataParallel(m)\nwith torch.autocast('cpu'):\n    pass\n"
    brought = drawn(tmp_path, own + "loss.backward()\n", strategy="ddp")
    assert not any("own loop" in line for line in brought.not_applied)
    assert not brought.refused
    (line,) = drawn(tmp_path, own + "loss.backward()\n", strategy="fsdp").refused
    assert "a launch cannot give it fsdp" in line
    assert not drawn(tmp_path, "from elsewhere import wrap\nloss.backward()\n", strategy="ddp").refused, "who knows"
    (tmp_path / "helper.py").write_text("from torch.nn.parallel import DistributedDataParallel\n")
    assert not drawn(tmp_path, "from helper import wrap\nloss.backward()\n", strategy="ddp").refused
    captured = (("wrapper", "DistributedDataParallel"),)
    assert not drawn(tmp_path, "import torch\nloss.backward()\n", strategy="ddp", script=captured).refused
    started = (*captured, ("starts_ranks", 1))
    (line,) = drawn(tmp_path, "import torch\nloss.backward()\n", strategy="ddp", script=started).refused
    assert "starts its ranks itself (torch.multiprocessing): launched as" in line


def test_accumulation_needs_accumulate(tmp_path: Path) -> None:
    source = "from accelerate import Accelerator\na = Accelerator()\n"
    assert any("never calls accelerator.accumulate()" in line for line in drawn(tmp_path, source).not_applied)
    assert any("accumulate" in line for line in drawn(tmp_path, source, strategy="zero2").not_applied), "nor DeepSpeed"


def test_data_loading_reaches_the_accelerator_through_the_runner(tmp_path: Path) -> None:
    settings = {"data.split_batches": "true", "data.dispatch_batches": "false", "data.seedable_sampler": "true"}
    script = tmp_path / "train.py"
    script.write_text(LOOP.format(""))
    made = job(saved("ddp", settings=settings), script)
    launch = prepare(made, attempt=2, folder=RunFolder(tmp_path / "run"), resume_from=Path("/c"))
    options = json.loads(launch.environment[names.OPTIONS])
    assert options["data_loader"] == {"split_batches": True, "dispatch_batches": False, "use_seedable_sampler": True}
    assert launch.environment[names.MICRO_BATCH_SIZE] == "32", "a split batch is that of all ranks together"
    assert launch.environment[names.ATTEMPT] == "2"
    assert launch.environment[names.RESUME_FROM] == "/c"
    words = drawn(tmp_path, TRAINER, settings={"data.even_batches": "false"}).target.arguments
    assert words[words.index("--accelerator_config") + 1] == '{"even_batches": false}'


def test_arguments_that_the_script_would_refuse_end_it_here(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"takes no argument --lrr\. Did you mean --lr"):
        drawn(tmp_path, cli(), "--lrr", "1")


def test_cpu_ranks_and_their_environment(tmp_path: Path) -> None:
    ddp = drawn(tmp_path, LOOP.format(""), strategy="ddp", gpus="2xcpu").target.environment
    assert ddp["ACCELERATE_USE_CPU"] == "true"
    assert names.CPU_RANKS not in ddp
    fsdp = drawn(tmp_path, LOOP.format(""), strategy="zero3", gpus="2xcpu").target.environment
    assert "ACCELERATE_USE_CPU" not in fsdp, "with it FSDP2 silently becomes DDP"
    assert fsdp["ACCELERATE_TORCH_DEVICE"] == "cpu"
    assert ddp["CUDA_VISIBLE_DEVICES"] == fsdp["CUDA_VISIBLE_DEVICES"] == ""
    gpu = drawn(tmp_path, LOOP.format(""), settings={"alloc.expandable_segments": "true"}).target.environment
    assert gpu["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    found = drawn(tmp_path, LOOP.format("")).target
    searched = replace(found.saved, plan=replace(found.saved.plan, chosen={"alloc.expandable_segments": "true"}))
    assert device_environment(replace(found, saved=searched)) == {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    assert "CUDA_VISIBLE_DEVICES" not in gpu


def test_checkpointing_has_exactly_one_doer(tmp_path: Path) -> None:
    def doers(source: str, strategy: str) -> tuple[bool, bool, bool]:
        script = tmp_path / "train.py"
        script.write_text(textwrap.dedent(source))
        plan = saved(strategy, checkpointing="full")
        found = draw(job(plan, script), read_script(script), folder=tmp_path)
        launch = prepare(job(plan, script), attempt=1, folder=RunFolder(tmp_path / "run"), resume_from=None)
        runner = json.loads(launch.environment[names.OPTIONS])["checkpointing"] == "full"
        told = any("checkpointing" in word for word in found.target.arguments)
        return found.target.wrapper_checkpoints, told, runner

    assert doers(LOOP.format(""), "fsdp") == (True, False, False)
    assert doers(LOOP.format(""), "ddp") == (False, False, True)
    assert doers(cli(), "fsdp") == (False, True, False)
    assert doers(TRAINER, "zero3") == (False, True, False)


def test_an_export_starts_nothing_of_ours(tmp_path: Path) -> None:
    plan = saved("fsdp")
    made = Job(saved=plan, script=Path("train.py"), working_directory=tmp_path, command="plan export p.json")
    for engine in ("accelerate", "torchrun"):
        launch = export(made, None, engine=engine, folder=tmp_path)
        assert "gpu_plan.executor.runner" not in launch.command
        assert not {names.RUN_ID, names.OPTIONS, names.RUN_FOLDER} & set(launch.environment)
        assert launch.command[-1] == "train.py"
    trainer = export(
        Job(saved=saved("zero2", stack="trainer"), script=Path("train.py"), working_directory=tmp_path),
        None,
        engine="deepspeed",
        folder=tmp_path,
    )
    assert "--per_device_train_batch_size" in trainer.command


def test_what_the_script_was_seen_to_do_is_not_told_as_lost(tmp_path: Path) -> None:
    own = {"optimizer": "captured", "attention": "captured"}
    asked = drawn(tmp_path, LOOP.format(""), optimizer=Optimizer("sgd"), attention=Attention("eager"))
    seen = drawn(tmp_path, LOOP.format(""), optimizer=Optimizer("sgd"), attention=Attention("eager"), basis=own)
    said = ("optimizer sgd: the script has no option for it", "attention eager: the script has no option for it")
    assert all(any(line.startswith(one) for line in asked.not_applied) for one in said)
    assert not any(line.startswith(said) for line in seen.not_applied)


def test_several_models_of_a_script_are_not_compared_one_by_one(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOOP.format(""))
    assert job(saved(), script).expected_parameters == saved().model.parameters
    assert job(saved(script=(("models", 2),)), script).expected_parameters is None
