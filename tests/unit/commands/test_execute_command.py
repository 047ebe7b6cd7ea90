"""`plan --execute` and `plan export` up to the launch: files shown, configuration read, what is refused and how."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.commands.execute.options import with_configuration
from gpu_plan.planner.cache_dir import versions
from gpu_plan.planner.errors import PreflightError, UsageError
from gpu_plan.planner.hardware.cluster import cluster_document
from gpu_plan.planner.job.checks import check_port, machine_differences
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.options.words import main_parser
from gpu_plan.planner.plan.files import save
from gpu_plan.planner.plan.saved import SavedPlan
from tests.support.launch_plans import cluster_of, saved

SCRIPT = """
import argparse
from accelerate import Accelerator
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int)
parser.add_argument("--seq-len", type=int)
parser.add_argument("--lr", type=float)
args = parser.parse_args()
Accelerator().accumulate(model)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("SLURM_NODEID", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def made(folder: Path, strategy: str = "ddp", gpus: str = "2xcpu", **more: object) -> SavedPlan:
    """A plan of these versions and of the shipped config, written to plan.json."""
    draft = saved(strategy, gpus, versions=versions(), **more)  # type: ignore[arg-type]
    model = replace(draft.model, config_digest=resolve(draft.model.id, read_headers=False).digest)
    plan = replace(draft, model=model)
    save(plan, folder / "plan.json", force=True)
    return plan


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


def test_a_dry_run_shows_files_and_command_and_writes_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(here, "zero2")
    code, out, err = run(capsys, "--plan", "plan.json", "--execute", "train.py", "--dry-run", "--", "--lr", "3e-4")
    assert code == 0
    assert "# ---- accelerate.yaml\n# Made by: plan --plan plan.json --execute train.py --dry-run -- --lr 3e-4" in out
    assert '"stage": 2' in out
    command = out.rpartition("# ---- command\n")[2]
    assert "accelerate-launch --config_file " in command
    assert command.rstrip().endswith(f"{here}/train.py --batch-size 4 --seq-len 2048 --lr 3e-4")
    assert "not applied" not in err
    assert sorted(path.name for path in here.iterdir()) == ["plan.json", "train.py"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--execute", "absent.py"], 3, "there is no script"),
        (["--plan", "absent.json", "--execute", "train.py"], 3, "there is no plan absent.json"),
        (["--plan", "plan.json"], 2, "--plan is about a script that runs: add --execute SCRIPT"),
        (["gpt2", "--gpus", "2xcpu", "--max-restarts", "2"], 2, "--max-restarts is about a script"),
        (["gpt2", "--gpus", "2xcpu", "--leave-running", "ray"], 2, "--leave-running is about a script"),
        (["gpt2", "--gpus", "2xcpu", "--hang-seconds", "9"], 2, "--hang-seconds is about a script"),
        (["--plan", "plan.json", "--execute", "train.py", "--hang-seconds", "soon"], 2, "--hang-seconds='soon' is not"),
        (["--plan", "plan.json", "--execute", "train.py", "--leave-running", "/bin/ray"], 2, "is not a program's name"),
        (["--plan", "plan.json", "--execute", "train.py", "--leave-running", "python3"], 2, "name the script"),
        (["gpt2", "--gpus", "2xcpu", "--", "--lr", "1"], 2, "arguments after -- belong to a script"),
        (["--plan", "plan.json", "--execute", "train.py", "--strategy", "ddp"], 2, "leave out --strategy, or --plan"),
        (["gpt2", "--plan", "plan.json", "--execute", "train.py"], 2, "leave out MODEL, or --plan"),
        (["--plan", "plan.json", "--execute", "train.py", "--json"], 2, "leave out --execute"),
        (["--plan", "plan.json", "--execute", "train.py", "--hosts", "a,b"], 2, "for 1 node, this names 2"),
        (["--plan", "plan.json", "--execute", "train.py", "--machine-rank", "1"], 2, "there are 1 hosts"),
        (["--plan", "plan.json", "--execute", "train.py", "--max-restarts", "-1"], 2, "--max-restarts"),
        (["--plan", "plan.json", "--execute", "train.py", "--dry-run", "--", "--lrr", "1"], 2, "Did you mean --lr?"),
        (["--plan", "plan.json", "--execute", "train.py", "--", "--lr", "x"], 2, "invalid float value: 'x'"),
        (["--plan", "plan.json", "--execute", "."], 2, "is a folder"),
        (["--plan", "plan.json", "--execute", "broken.py"], 2, "broken.py:2: the script does not parse"),
        (["--plan", "plan.json", "--execute", "a.ipynb"], 2, "a.ipynb is a notebook"),
        (["export", "plan.json", "--to", "nomad"], 2, "is not an engine: use accelerate"),
        (["export", "plan.json", "--to", "deepspeed"], 2, "this plan is ddp"),
        (["export", "absent.json", "--to", "torchrun"], 3, "there is no plan"),
        (["export", "plan.json", "--to", "torchrun", "--script", "absent.py"], 3, "there is no script"),
        (["export", "plan.json"], 2, "--to"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str
) -> None:
    made(here)
    (here / "broken.py").write_text("x = 1\ny = (\n")
    (here / "a.ipynb").write_text('{"cells": []}')
    found, out, err = run(capsys, *words)
    assert (found, out) == (code, "")
    assert message in err
    lines = [line for line in err.splitlines() if "error" in line]
    assert len(lines) == 1
    assert not (here / "runs").exists()


def test_a_stale_plan_is_refused_with_the_difference(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = made(here)
    changed = replace(plan, created_with={**plan.created_with, "torch": "2.0.0"})
    save(changed, here / "old.json")
    code, _, err = run(capsys, "--plan", "old.json", "--execute", "train.py", "--dry-run")
    assert code == 2
    assert "version of torch was 2.0.0, is " in err
    assert f"Make it again: {plan.command}" in err
    other = replace(plan, model=replace(plan.model, config_digest="0" * 64))
    save(other, here / "other.json")
    code, _, err = run(capsys, "--plan", "other.json", "--execute", "train.py", "--dry-run")
    assert code == 2
    assert "the config of meta-llama/Llama-3.1-8B is another" in err
    moved = replace(plan, model=replace(plan.model, id="./gone", source="folder"))
    save(moved, here / "moved.json")
    code, _, err = run(capsys, "--plan", "moved.json", "--execute", "train.py", "--dry-run")
    assert code == 0
    assert "whether its config is still the plan's is not known" in err


def test_a_plan_for_other_hardware_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(here, "fsdp", "8xH100")
    code, _, err = run(capsys, "--plan", "plan.json", "--execute", "train.py")
    assert code == 4
    assert "the plan is for 8xH100: this machine has no GPU. Plan for this machine: --gpus auto" in err
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    ("planned", "present", "difference"),
    [
        ("8xH100", "8xH100", ""),
        ("4xH100", "8xH100", ""),
        ("2x8xH100", "8xH100", ""),
        ("8xH100", "4xH100", "has 4 GPUs, 8 on each node"),
        ("2xA100-80GB", "2xA100", "40GB"),
        ("2xH100", "2xA100-80GB", "A100"),
    ],
)
def test_machines_are_compared_node_by_node(planned: str, present: str, difference: str) -> None:
    found = machine_differences(cluster_document(cluster_of(planned)), cluster_document(cluster_of(present)))
    assert (difference in " ".join(found)) if difference else found == []


def test_a_port_in_use_is_found_before_the_launch() -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PreflightError, match=f"port {port}, at which the hosts meet, cannot be opened"):
            check_port(("a", "b"), 0, port)
        check_port(("a", "b"), 1, port)
        check_port((), 0, port)


def test_hosts_and_rank_reach_the_command(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made(here, "ddp", "2x1xcpu")
    words = ("--plan", "plan.json", "--execute", "train.py", "--dry-run")
    code, _, err = run(capsys, *words)
    assert code == 2
    assert "the plan is for 2 nodes: name them with --hosts" in err
    monkeypatch.setenv("SLURM_NODEID", "1")
    code, out, _ = run(capsys, *words, "--hosts", "head:29600,other")
    assert code == 0
    for line in ("machine_rank: 1", "main_process_ip: head", "main_process_port: 29600", "num_machines: 2"):
        assert line in out
    assert "--rdzv_backend c10d" in out
    assert run(capsys, *words, "--hosts", "head:x,other")[0] == 2


def test_the_configuration_gives_what_the_command_line_does_not(here: Path) -> None:
    (here / "work").mkdir()
    (here / "model").mkdir()
    (here / "plan.toml").write_text(
        "model = './model'\nseq-len = 64\npin = true\nmicro-batch = 2\nlora-targets = ['q', 'v']\nfused-loss = false\n"
        "[gpus]\nuse = '2xmy-card'\n[gpus.my-card]\nmemory = '1 GiB'\n"
        "[set]\nzero.reduce_bucket_size = 1000\n'zero.overlap_comm' = true\n"
    )
    words = ["--execute", "work/train.py", "--micro-batch", "1", "--set", "zero.reduce_bucket_size=7"]
    args = main_parser().parse_args(words)
    made_words, taken = with_configuration(args, words, here / "work" / "train.py")
    assert (args.model, args.gpus, args.seq_len, args.pin) == ("./model", "2xmy-card", "64", True)
    assert args.lora_targets == "q,v"
    assert args.micro_batch == "1", "what the command line says counts"
    settings = ["zero.overlap_comm=true", "zero.reduce_bucket_size=7"]
    assert args.settings == settings, "of equal keys the command line's counts"
    assert taken == f"model, seq-len, pin, lora-targets, fused-loss, gpus, set: from {here}/plan.toml"
    again = main_parser().parse_args(made_words)
    assert vars(again) == vars(args), "the words that are kept mean the same"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "modle = 'x'",
            "unknown key modle; known: options of plan by their names, such as seq-len. Did you mean model?",
        ),
        ("seq_len = 3", "Did you mean seq-len?"),
        ("model = [1]", "model must be a string"),
        ("model = 'gpt2'\ngpus = '2xcpu'\nprecision = 'fp33'", "Did you mean fp32? (model, gpus, precision: from "),
        ("model = 'gpt2'\nseq-len = 'x'\ngpus = '2xcpu'", "--seq-len 'x' is not a positive integer"),
        ("execute = 'train.py'", "unknown key execute"),
    ],
)
def test_a_configuration_that_makes_no_sense(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (here / "plan.toml").write_text(text)
    code, out, err = run(capsys, "--execute", "train.py", "--dry-run")
    assert (code, out) == (2, "")
    assert message in err


def test_export_writes_what_it_says(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(here, "zero3", offload="optimizer")
    words = ("export", "plan.json", "--to", "accelerate", "--script", "train.py", "-o", "out")
    code, out, err = run(capsys, *words)
    assert code == 0
    assert sorted(path.name for path in (here / "out").iterdir()) == [
        "accelerate.yaml",
        "command.sh",
        "deepspeed.json",
        "float8_products.py",
        "gloo_ranks.py",
        "post_import.py",
        "start_rank.py",  # with what it imports: ZeRO among CPU processes needs them, and the folder stands on its own
    ]
    assert (here / "out" / "accelerate.yaml").read_text().startswith(f"# Made by: plan {' '.join(words)}")
    assert (here / "out" / "command.sh").stat().st_mode & 0o100
    assert "train.py --batch-size 4" in out
    (here / "out" / "command.sh").unlink()
    code, _, err = run(capsys, *words)
    assert code == 2
    assert "give --force" in err
    assert not (here / "out" / "command.sh").exists(), "all or nothing"
    assert run(capsys, *words, "--force")[0] == 0


def test_a_place_that_cannot_be_written_is_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(here)
    (here / "runs").write_text("not a folder")
    code, _, err = run(capsys, "--plan", "plan.json", "--execute", "train.py")
    assert code == 2
    assert "runs" in err
    assert "run where you may write" in err


@pytest.mark.parametrize(
    ("written", "told"),
    [("", "no answer"), ("seq-len = 128\n", "no answer (seq-len: from {folder}/plan.toml)")],
)
def test_a_refusal_names_the_configuration_where_it_took_part(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], written: str, told: str
) -> None:
    def find_plans(*_: object, **__: object) -> None:
        raise UsageError("no answer")

    monkeypatch.setattr("gpu_plan.commands.job.asking.find_plans", find_plans)
    (here / "plan.toml").write_text(written)
    assert main(["gpt2", "--gpus", "2xcpu", "--execute", "train.py"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"plan: error: {told.format(folder=here)}"
