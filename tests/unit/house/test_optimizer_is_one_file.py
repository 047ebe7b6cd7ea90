"""An optimizer is one file: a toy in a folder of its own is found by everything that has to do with optimizers."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.executor.deviations import deviations
from gpu_plan.executor.doctor.machine import need_of
from gpu_plan.executor.launch.prepare import draw
from gpu_plan.executor.records.rank import Actual, RankRecord, StepSummary
from gpu_plan.executor.script.read import read_script
from gpu_plan.executor.supervise.ladder.planner_process import asked_again
from gpu_plan.planner.capture.request import OptimizerFacts
from gpu_plan.planner.capture.watch.observe import planned_name
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.from_config.convert import convert
from gpu_plan.planner.options.parser import job_parser
from gpu_plan.planner.options.training.reading import read_given
from gpu_plan.planner.strategy.base import Offload
from gpu_plan.planner.strategy.kinds.fsdp import FullyShardedDataParallel
from gpu_plan.planner.strategy.kinds.single import Single
from gpu_plan.planner.strategy.kinds.zero2 import Zero2
from gpu_plan.planner.workload.optimizers import kinds
from gpu_plan.planner.workload.optimizers.registry import Optimizer, optimizers
from tests.support.launch_plans import job, saved
from tests.support.live_bytes import at_rest, peak
from tests.support.rank_contexts import small_context
from tests.support.tiny_trace import tiny_trace

FILE = Path(__file__).resolve().parents[2] / "support" / "toy_optimizer.py"
SHAPES = [(100, 4), (50, 4), (25, 4)]
NUMEL, BATCH = 700, 64
TRACE = tiny_trace(SHAPES, element_bytes=4)
TRAINER = """
from transformers import HfArgumentParser, Trainer, TrainingArguments
Trainer(args=HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()[0]).train()
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Optimizer]:
    folder = tmp_path / "kinds"
    folder.mkdir()
    shutil.copy(FILE, folder / "toy.py")
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(folder)])
    optimizers.cache_clear()
    yield Optimizer("toy")
    monkeypatch.undo()
    sys.modules.pop(f"{kinds.__name__}.toy", None)
    optimizers.cache_clear()


def test_it_is_an_option_with_its_words_in_the_help(toy: Optimizer) -> None:
    assert read_given({"optimizer": "TOY"}, ()).optimizer == toy
    assert "muon (torch's; AdamW for the rest), toy (nobody's)" in " ".join(job_parser().format_help().split())
    with pytest.raises(UsageError, match=r"use adamw, .*, muon, toy\. Did you mean toy\?"):
        read_given({"optimizer": "toyy"}, ())


def test_without_its_file_it_is_unknown() -> None:
    with pytest.raises(UsageError, match="'toy' is unknown"):
        read_given({"optimizer": "toy"}, ())


def test_its_state_and_its_step_stand_in_a_ranks_stream(toy: Optimizer) -> None:
    stream = Single().rank(small_context(TRACE, world_size=1, optimizer=toy)).stream
    standing = 4 * NUMEL + BATCH + 3 * 4 * NUMEL
    assert at_rest(stream)[1] == standing
    assert peak(stream, stream.step_segments[1]) == standing + 4 * NUMEL + 5 * 4 * NUMEL


def test_its_traffic_is_what_a_step_takes_its_time_for(toy: Optimizer) -> None:
    work = Single().rank(small_context(TRACE, world_size=1, optimizer=toy)).optimizer_work
    assert work.parameter_bytes_read_written == 9 * 4 * NUMEL


def test_strategies_refuse_it_by_what_its_kernels_know(toy: Optimizer) -> None:
    assert "toy keeps plain tensors" in str(FullyShardedDataParallel().refuses(small_context(TRACE, optimizer=toy)))
    offloaded = small_context(TRACE, optimizer=toy, offload=Offload.OPTIMIZER)
    assert "CPU Adam, not with toy" in str(Zero2().refuses(offloaded))


def test_the_trainer_is_told_its_word_for_it(toy: Optimizer, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINER)
    drawn = draw(job(saved(optimizer=toy), script), read_script(script), folder=tmp_path / "run", resume_from=None)
    words = drawn.target.arguments
    assert words[words.index("--optim") + 1] == "toy_torch"


def test_a_rung_of_the_ladder_keeps_it(toy: Optimizer, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINER)
    plan = saved(optimizer=toy)
    assert asked_again(job(plan, script), plan.plan.strategy).options["optimizer"] == "toy"


def test_the_doctor_asks_for_its_package_and_its_room(toy: Optimizer) -> None:
    need = need_of(saved("ddp", optimizer=toy))
    assert "toylib" in need.packages
    parameters = saved("ddp").model.parameters
    assert need.checkpoint_bytes == (4 + 11) * parameters
    assert need_of(saved("ddp", precision="bf16", optimizer=toy)).checkpoint_bytes == (2 + 5) * parameters


def test_it_is_told_from_others_in_a_captured_script(toy: Optimizer) -> None:
    assert planned_name(OptimizerFacts(class_name="toylib.optim.Toyer")) == toy
    assert planned_name(OptimizerFacts(class_name="elsewhere.Toyer")) is None


@pytest.mark.parametrize(("ran", "lines"), [("toylib.optim.ToyStep", 0), ("torch.optim.adamw.AdamW", 1)])
def test_it_is_told_from_others_in_a_rank(toy: Optimizer, ran: str, lines: int) -> None:
    record = RankRecord(
        run_id="run",
        attempt=1,
        rank=0,
        local_rank=0,
        world_size=1,
        pid=1,
        host="here",
        device="cuda:0",
        status="done",
        started=0.0,
        updated=1.0,
        actual=Actual(optimizers=(ran,)),
        summary=StepSummary(steps=3),
    )
    found = deviations(saved("single", "1xH100", optimizer=toy), [record])
    assert len([line for line in found if "the optimizer was" in line]) == lines


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trainer.yaml", {"output_dir": "x", "per_device_train_batch_size": 1, "optim": "toy_hf"}),
        ("factory.yaml", {"finetuning_type": "full", "stage": "sft", "use_toy": True}),
        ("deepspeed.json", {"zero_optimization": {"stage": 2}, "optimizer": {"type": "ToyAdam"}}),
    ],
)
def test_other_tools_files_mean_it(toy: Optimizer, name: str, content: dict[str, object]) -> None:
    said = {one.option: one.value for one in convert(content, name, _no_other_file).options}
    assert said["optimizer"] == "toy"


def _no_other_file(path: str) -> Mapping[str, object]:
    raise AssertionError(path)


_PROBE = """
import sys
from gpu_plan.planner.workload.optimizers import kinds
kinds.__path__.append(sys.argv[1])
from gpu_plan.cli import main
from gpu_plan.executor.doctor.flow.names import makes_optimizer
from gpu_plan.tui.choices import SCRIPT, TRAINING
assert makes_optimizer("toylib.optim.Toyer") and makes_optimizer("toylib.optim.PagedToyer")
for menu in (TRAINING, SCRIPT):
    values = menu.choices["optimizer"].values
    assert values[:4] == ("adamw", "adamw-fused", "toy", "adamw-8bit"), values
sys.exit(main(sys.argv[2:]))
"""


def test_the_explorer_the_doctors_reading_and_a_whole_plan_know_it(tmp_path: Path) -> None:
    """In a process of its own: what reads the registry when it is imported reads the toy as well.

    The step is traced here: an optimizer is no part of a trace, and that process need not import torch.
    """
    shutil.copy(FILE, tmp_path / "toy.py")
    words = ("EleutherAI/pythia-70m", "--gpus", "1xH100", "--precision", "fp32", "--pin", "--json")
    assert main([*words]) == 0
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, str(tmp_path), *words, "--optimizer", "toy"],
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["workload"]["optimizer"] == "toy"
    at_peak = document["plans"][0]["memory"]["at_peak"]
    assert at_peak["optimizer_state"] == pytest.approx(3 * at_peak["parameters"], rel=0.01)
