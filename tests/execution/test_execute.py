"""`plan --execute` and exported files, launched for real on gloo processes; what ran is seen from inside."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.executor.run_folder import RunFolder, list_runs

PLAN = str(Path(sys.executable).parent / "plan")
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("ACCELERATE_", "GPU_PLAN_"))},
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONPATH": str(Path(__file__).parent / "jobs"),
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}
if "GPU_PLAN_CACHE" in os.environ:
    ENVIRONMENT["GPU_PLAN_CACHE"] = os.environ["GPU_PLAN_CACHE"]

LOOP = """
import json, os
import torch
from accelerate import Accelerator
from tiny import Tokens, tiny_llama
from torch.utils.data import DataLoader

accelerator = Accelerator()
model = tiny_llama()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Tokens(64), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
steps, sizes = 0, []
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        accelerator.backward(loss)
        sizes.append(list(batch["input_ids"].shape))
        optimizer.step()
        optimizer.zero_grad()
    steps += accelerator.sync_gradients
    if steps == 2:
        break
truth = {
    "ranks": accelerator.num_processes,
    "type": accelerator.distributed_type.value,
    "class": type(model).__name__,
    "precision": accelerator.mixed_precision,
    "accumulation": accelerator.gradient_accumulation_steps,
    "sizes": sizes,
    "even": accelerator.dataloader_config.even_batches,
    "split": accelerator.dataloader_config.split_batches,
    "machine": os.environ.get("GROUP_RANK"),
}
with open(f"truth-{os.environ.get('RANK', 0)}.json", "w") as file:
    json.dump(truth, file)
accelerator.end_training()
"""
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, a script that takes no option, and a plan.toml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "train.py").write_text(LOOP)
    (tmp_path / "plan.toml").write_text(
        "model = './model'\ngpus = '2xcpu'\nseq-len = 16\nprecision = 'fp32'\npin = true\nglobal-batch = 8\n"
        "micro-batch = 2\n"
    )
    return tmp_path


def truths(folder: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("truth-*.json"))]


def plan(folder: Path, *words: str, timeout: float = 1500) -> subprocess.CompletedProcess:
    return subprocess.run(
        [PLAN, *words], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout, check=False
    )


def only_run(folder: Path) -> RunFolder:
    (run,) = list_runs(folder)
    return run


@pytest.mark.slow
def test_an_untouched_script_runs_as_planned(project: Path) -> None:
    """Its DataLoader says 8; the plan says micro batch 2 with two accumulation steps on two ranks."""
    done = plan(project, "--execute", "train.py")
    assert done.returncode == 0, done.stderr
    assert "its DataLoader is rebuilt with 2 on each rank" in done.stderr
    assert "launch --config_file " in done.stderr, "the whole command is shown"
    found = truths(project)
    assert len(found) == 2
    for truth in found:
        assert truth["ranks"] == 2
        assert truth["class"] == "DistributedDataParallel"
        assert truth["accumulation"] == 2
        assert truth["sizes"] == [[2, 16]] * 4
    record = only_run(project).read_run()
    assert (record.status, record.exit_code) == ("succeeded", 0)
    assert record.attempts[-1].deviations == ()


@pytest.mark.slow
def test_data_settings_reach_the_accelerator(project: Path) -> None:
    done = plan(
        project, "--execute", "train.py", "--set", "data.split_batches=true", "--set", "data.even_batches=false"
    )
    assert done.returncode == 0, done.stderr
    for truth in truths(project):
        assert (truth["split"], truth["even"]) == (True, False)
        assert truth["sizes"] == [[2, 16]] * 4, "split batches are those of all ranks: each still gets its micro batch"


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "zero2"])
def test_two_launchers_are_one_job(project: Path, strategy: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert main(["--execute", "train.py", "--gpus", "2x1xcpu", "--strategy", strategy, "--dry-run",
                 "--hosts", "a,b", "--save", "plan.json"]) == 0  # fmt: skip
    words = ["--plan", "plan.json", "--execute", "../train.py", "--hosts", f"127.0.0.1:{port},127.0.0.1"]
    words[1] = str(project / "plan.json")
    started = []
    for rank in range(2):
        folder = project / f"machine-{rank}"
        folder.mkdir()
        (folder / "model").symlink_to(project / "model")
        command = [PLAN, *words, "--machine-rank", str(rank)]
        started.append(
            subprocess.Popen(
                command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    outputs = [process.communicate(timeout=1500)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(outputs)
    found = [truth for rank in range(2) for truth in truths(project / f"machine-{rank}")]
    assert len(found) == 2
    assert {truth["machine"] for truth in found} == {"0", "1"}
    assert {truth["ranks"] for truth in found} == {2}
    kind = {"ddp": "DistributedDataParallel", "zero2": "DeepSpeedEngine"}[strategy]
    assert {truth["class"] for truth in found} == {kind}


REFUSES_THIS_PACKAGE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "gpu_plan":
            raise ImportError("this machine does not have gpu_plan")

sys.meta_path.insert(0, Refuse())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "strategy", "kind"),
    [
        ("accelerate", "ddp", "DistributedDataParallel"),
        ("accelerate", "fsdp", "FSDPLlamaForCausalLM"),
        ("accelerate", "zero2", "DeepSpeedEngine"),
        ("torchrun", "ddp", "DistributedDataParallel"),
        ("torchrun", "fsdp", "FSDPLlamaForCausalLM"),
        ("torchrun", "zero3", "DeepSpeedEngine"),
        ("deepspeed", "zero1", "DeepSpeedEngine"),
        ("deepspeed", "zero2", "DeepSpeedEngine"),
        ("deepspeed", "zero3", "DeepSpeedEngine"),
    ],
)
def test_exported_files_launch_the_job_elsewhere(
    project: Path, tmp_path_factory: pytest.TempPathFactory, engine: str, strategy: str, kind: str
) -> None:
    """Moved to another folder, the one that they were written in gone, on a machine without this package."""
    words = ["--execute", "train.py", "--strategy", strategy, "--micro-batch", "1", "--dry-run", "--save", "plan.json"]
    assert main(words) == 0
    assert main(["export", "plan.json", "--to", engine, "--script", "train.py", "-o", "out"]) == 0
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("out", "train.py", "model"):
        (project / name).rename(elsewhere / name)
    (elsewhere / "sitecustomize.py").write_text(REFUSES_THIS_PACKAGE)
    path = os.pathsep.join((str(elsewhere), ENVIRONMENT["PYTHONPATH"]))
    done = subprocess.run(
        ["./out/command.sh"],
        cwd=elsewhere,
        env={**ENVIRONMENT, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = truths(elsewhere)
    assert [truth["ranks"] for truth in found] == [2, 2]
    assert {truth["class"] for truth in found} == {kind}
    assert {truth["accumulation"] for truth in found} == {4}
    assert sorted(path.name for path in project.iterdir() if path.name.startswith(("truth", "runs"))) == []


TRAINER = """
import json, os, sys
from tiny import Tokens, tiny_llama
from transformers import HfArgumentParser, Trainer, TrainingArguments

parser = HfArgumentParser(TrainingArguments)
parser.set_defaults(output_dir="out", report_to="none", save_strategy="no", disable_tqdm=True)
(arguments,) = parser.parse_args_into_dataclasses()
trainer = Trainer(model=tiny_llama(), args=arguments, train_dataset=Tokens(64))
trainer.train()
truth = {
    "class": type(trainer.model_wrapped).__name__,
    "precision": trainer.accelerator.mixed_precision,
    "batch": arguments.per_device_train_batch_size,
    "accumulation": arguments.gradient_accumulation_steps,
    "even": trainer.accelerator.dataloader_config.even_batches,
}
with open(f"truth-{os.environ.get('RANK', 0)}.json", "w") as file:
    json.dump(truth, file)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "kind"),
    [("ddp", "DistributedDataParallel"), ("fsdp", "FSDPLlamaForCausalLM"), ("zero2", "DeepSpeedEngine")],
)
def test_the_trainer_runs_as_planned(project: Path, strategy: str, kind: str) -> None:
    (project / "train.py").write_text(TRAINER)
    words = ["--strategy", strategy, "--precision", "bf16-mixed", "--checkpointing", "full"]
    done = plan(project, *words, "--set", "data.even_batches=false", "--execute", "train.py", "--", "--max_steps", "2")
    assert done.returncode == 0, done.stderr
    found = truths(project)
    assert len(found) == 2
    for truth in found:
        assert truth["class"] == kind
        assert truth["precision"] == "bf16"
        assert (truth["batch"], truth["accumulation"], truth["even"]) == (2, 2, False)
    ranks = list(only_run(project).ranks())
    assert {rank.actual.strategy for rank in ranks} == {strategy}
    assert {rank.actual.gradient_accumulation_steps for rank in ranks} == {2}
    assert {rank.actual.checkpointing for rank in ranks} == {True}
    assert only_run(project).read_run().attempts[-1].deviations == ()
