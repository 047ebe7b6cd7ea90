"""`plan check` as a user runs it: files, exit codes, one line for what makes no sense, the working tree untouched."""

import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.options.config import check_tables
from gpu_plan.planner.regression.jobs import read_jobs
from gpu_plan.planner.regression.result import report_from_json
from gpu_plan.planner.regression.state import state_key
from tests.check.seeds import REPOSITORY, copy

TABLE = """[tool.other]
checks = 1

[tool.plan.checks.llama]
model = "./tiny-llama"
gpus = "1xT4"
micro-batch = 2
budget = ["fits", "peak <= 2 GiB"]
"""


@pytest.fixture
def project(tmp_path, monkeypatch, tmp_path_factory):
    """A project with one quick job, as the working directory; its cache is the test session's own."""
    shutil.copytree(REPOSITORY / "examples" / "tiny-llama", tmp_path / "tiny-llama")
    (tmp_path / "pyproject.toml").write_text(TABLE, encoding="utf-8")
    cache = tmp_path_factory.getbasetemp() / "check-cache"
    monkeypatch.setenv("GPU_PLAN_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(root):
    """Every file's digest."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def checked(capsys, *words):
    """Exit code and report."""
    code = main(["check", "--format", "json", *words])
    return code, report_from_json(capsys.readouterr().out, "stdout")


def test_new_then_updated_then_ok(project, capsys):
    code, report = checked(capsys)
    assert (code, report.status) == (0, "new")
    assert not (project / ".plan").exists()
    code, report = checked(capsys, "--update")
    assert (code, report.jobs[0].updated) == (0, True)
    assert list((project / ".plan").iterdir()) == [project / ".plan" / "llama.json"]
    before = files(project)
    code, report = checked(capsys)
    assert (code, report.status, report.jobs[0].findings) == (0, "ok", ())
    assert report.jobs[0].line == 4
    code, report = checked(capsys, "--update")
    assert (code, report.jobs[0].updated) == (0, False)
    assert files(project) == before


def test_an_unchanged_check_imports_no_torch(project):
    told = "import sys; from gpu_plan.cli import main; code = main(['check']); print(code, 'torch' in sys.modules)"

    def last_line():
        done = subprocess.run(
            [sys.executable, "-c", told], cwd=project, capture_output=True, text=True, timeout=1500, check=True
        )
        return done.stdout.splitlines()[-1]

    assert last_line().startswith("0 ")
    # Kept answers are of one state of the program: where somebody edits it meanwhile, they are made again.
    assert any(last_line() == "0 False" for _ in range(4))


def test_growth_fails_and_names_what_was_changed(project, capsys):
    checked(capsys, "--update")
    text = TABLE.replace("micro-batch = 2", "micro-batch = 8")
    (project / "pyproject.toml").write_text(text, encoding="utf-8")
    code, report = checked(capsys)
    assert (code, report.status) == (1, "fail")
    changed = next(finding for finding in report.jobs[0].findings if finding.kind == "input")
    assert (changed.message, changed.file, changed.line) == ("strategy.micro batch size: 2 -> 8", "pyproject.toml", 7)
    code, report = checked(capsys, "--update")
    assert (code, report.status) == (0, "ok")


def test_a_broken_budget_fails_even_when_updated(project, capsys):
    (project / "pyproject.toml").write_text(TABLE.replace("2 GiB", "1 MiB"), encoding="utf-8")
    code, report = checked(capsys, "--update")
    assert (code, report.status) == (1, "fail")
    worst = report.jobs[0].worst
    assert (worst.kind, worst.file, worst.line) == ("budget", "pyproject.toml", 8)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("micro-batch", "mikro-batch"), "pyproject.toml:4: [checks.llama] has the unknown key 'mikro-batch'"),
        (("peak <=", "peek <="), "Did you mean peak?"),
        (('model = "./tiny-llama"\n', ""), "pyproject.toml:4: [checks.llama] names no model"),
        (('"fits", ', ""), None),
        (("./tiny-llama", "./absent"), "pyproject.toml:4: [checks.llama]: there is no file or folder ./absent"),
        (("1xT4", "1xT5000"), "pyproject.toml:4: [checks.llama]: "),
        (("micro-batch = 2", 'precision = "fp12"'), "pyproject.toml:4: [checks.llama]: "),
        (('gpus = "1xT4"\n', ""), "names no GPUs"),
        (("[tool.plan.checks.llama]", "[tool.plan.checks.'a/b']"), "is not a name for a file"),
        (("2 GiB", "lots"), "pyproject.toml:4: [checks.llama] size 'lots' is not understood"),
    ],
)
def test_a_job_that_makes_no_sense_is_one_line(project, capsys, edit, said):
    (project / "pyproject.toml").write_text(TABLE.replace(*edit), encoding="utf-8")
    before = files(project)
    code = main(["check", "--update" if said else "llama"])
    shown = capsys.readouterr().err
    if said is None:
        assert code == 0
        return
    assert code == 2
    assert said in shown
    assert len([line for line in shown.splitlines() if line.startswith("plan: error")]) == 1
    assert files(project) == before


def test_a_job_that_is_not_there_is_named(project, capsys):
    assert main(["check", "lama"]) == 2
    assert "has no job [checks.lama]; it has llama. Did you mean llama?" in capsys.readouterr().err


def test_a_torn_baseline_is_one_line_until_it_is_made_again(project, capsys):
    checked(capsys, "--update")
    path = project / ".plan" / "llama.json"
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[3:3] = ["<<<<<<< HEAD", "======="]
    path.write_text("\n".join([*lines, ">>>>>>> topic"]), encoding="utf-8")
    before = files(project)
    assert main(["check"]) == 2
    shown = capsys.readouterr().err
    assert "plan: error: .plan/llama.json:4: [checks.llama]: torn by a merge conflict" in shown
    assert files(project) == before
    assert main(["check", "--update"]) == 0
    assert json.loads(path.read_text(encoding="utf-8"))["job"] == "llama"


def test_nothing_is_written_when_one_job_cannot_be_computed(project, capsys):
    text = TABLE + '\n[tool.plan.checks.absent]\nmodel = "./absent"\ngpus = "1xT4"\n'
    (project / "pyproject.toml").write_text(text, encoding="utf-8")
    assert main(["check", "--update"]) == 2
    assert not (project / ".plan").exists()
    assert "pyproject.toml:10: [checks.absent]" in capsys.readouterr().err


def test_the_report_goes_to_a_file_that_is_not_overwritten(project, capsys):
    assert main(["check", "--format", "json", "-o", "report.json"]) == 0
    report_from_json((project / "report.json").read_bytes(), "report.json")
    assert main(["check", "--format", "json", "-o", "report.json"]) == 2
    assert "report.json exists: add --force" in capsys.readouterr().err


def test_a_configuration_without_jobs_says_what_to_do(tmp_path, monkeypatch, capsys):
    (tmp_path / "plan.toml").write_text('gpus = "1xT4"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["check"]) == 2
    assert "plan.toml has no jobs to check: `plan check --init` proposes" in capsys.readouterr().err


# -- what the kept answer rests on --------------------------------------------------------------------------------


def test_every_text_file_of_the_project_counts_and_hidden_ones_do_not(tmp_path):
    root = copy("tinygpt", tmp_path / "tinygpt")
    job = read_jobs(check_tables(root), ["train"])[0]
    before = state_key(job)
    assert state_key(job) == before
    (root / ".notes.json").write_text("{}", encoding="utf-8")
    (root / "data.bin").write_bytes(b"1")
    assert state_key(job) == before
    (root / "gpt" / "config.py").open("a").write("# larger\n")
    changed = state_key(job)
    assert changed != before
    (root / "gpt" / "sizes.yaml").write_text("width: 512\n", encoding="utf-8")
    assert state_key(job) != changed


# -- init -----------------------------------------------------------------------------------------------------------

ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 1
num_processes: 8
fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true}
"""
AXOLOTL = """base_model: NousResearch/Meta-Llama-3-8B
adapter: lora
lora_r: 32
lora_target_linear: true
sequence_len: 4096
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: adamw_bnb_8bit
bf16: auto
"""


@pytest.fixture
def found(tmp_path, monkeypatch):
    """A repository that `plan check` does not know yet."""
    root = copy("finetune", tmp_path / "finetune")
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    (root / "pyproject.toml").write_text(text.partition("[tool.plan")[0], encoding="utf-8")
    (root / "scripts" / "accelerate.yaml").write_text(ACCELERATE, encoding="utf-8")
    (root / "lora.yml").write_text(AXOLOTL, encoding="utf-8")
    monkeypatch.chdir(root)
    return root


def test_init_proposes_from_what_it_finds_and_writes_nothing(found, capsys):
    before = files(found)
    assert main(["check", "--init"]) == 0
    checks = tomllib.loads(capsys.readouterr().out)["tool"]["plan"]["checks"]
    assert files(found) == before
    assert checks["train"] == {
        "model": "scripts/train.py",
        "args": ["--config", "..."],
        "gpus": "8xA100-40GB",
        "strategy": "fsdp",
        "offload": "none",
        "precision": "bf16-mixed",
        "budget": "fits",
        "set": {"fsdp.reshard_after_forward": True},
    }
    assert (checks["lora"]["model"], checks["lora"]["lora-rank"]) == ("NousResearch/Meta-Llama-3-8B", 32)
    assert checks["model"]["model"] == "model"


def test_init_write_adds_behind_what_is_there_and_only_once(found, capsys):
    before = (found / "pyproject.toml").read_text(encoding="utf-8")
    assert main(["check", "--init", "--write"]) == 0
    after = (found / "pyproject.toml").read_text(encoding="utf-8")
    assert after.startswith(before)
    assert [job.name for job in read_jobs(check_tables(Path.cwd()))] == ["train", "lora", "model"]
    assert main(["check", "--init", "--write"]) == 0
    assert (found / "pyproject.toml").read_text(encoding="utf-8") == after
    assert "holds no job to check beyond lora, model, train" in capsys.readouterr().err
