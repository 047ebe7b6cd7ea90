"""A checkpoint among a script's own words: found, judged and replaced before anything is launched."""

import time
from pathlib import Path

import pytest

from gpu_plan.executor.checkpoints.given import Given, given_checkpoint
from gpu_plan.executor.checkpoints.manifest import (
    DCP,
    DEEPSPEED,
    DEEPSPEED_UNIVERSAL,
    MANIFEST_FILE,
    REPLICATED,
    Manifest,
    list_files,
    write_manifest,
)
from gpu_plan.executor.runner.saving.fits import CheckpointMismatch, check_fits
from gpu_plan.executor.script.resume_words import going_on_from, named, replaced
from gpu_plan.planner.errors import ExitCode, PreflightError


def save(folder: Path, **changed: object) -> Path:
    """A checkpoint of DDP on two ranks, its files without meaning."""
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(1000))
    given = {"step": 4, "stack": "accelerate", "layout": REPLICATED, "strategy": "ddp", "world_size": 2}
    given |= {"created": time.time(), "parameter_names": ("a",), "parameters": 272, "model_class": "Linear"}
    write_manifest(folder, Manifest(**{**given, "files": list_files(folder), **changed}))  # type: ignore[arg-type]
    return folder


def look(words: tuple[str, ...], directory: Path, strategy: str = "ddp", ranks: int = 2) -> Given | None:
    return given_checkpoint(words, directory, strategy=strategy, world_size=ranks, parameters=272)


@pytest.mark.parametrize(
    "words",
    [
        ("--resume_from_checkpoint", "PATH"),
        ("--resume-from-checkpoint=PATH",),
        ("--epochs", "3", "--checkpoint", "PATH", "--seed", "1"),
        ("--resume", "PATH"),
        ("-v", "--load_checkpoint", "PATH"),
    ],
)
def test_the_usual_names_of_the_option(words: tuple[str, ...], tmp_path: Path) -> None:
    save(tmp_path / "out" / "step-4")
    asked = tuple(word.replace("PATH", "out/step-4") for word in words)
    found = look(asked, tmp_path, "fsdp")
    assert found is not None
    assert found.resume.conversion is not None
    assert found.resume.conversion.layout == DCP
    new = replaced(asked, found.named, "/made/here")
    assert new == tuple(word.replace("PATH", "/made/here") for word in words)
    assert look(asked, tmp_path) is not None
    assert look(asked, tmp_path).resume.conversion is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "words",
    [
        ("--model_name_or_path", "out/step-4"),
        ("--output_dir", "out/step-4"),
        ("out/step-4",),
        ("--resume",),
        ("--resume", "--seed", "1"),
        ("--resume_from_checkpoint", "latest"),
        ("--resume_from_checkpoint", "elsewhere"),
        ("--resume_from_checkpoint", "a\0b"),
        ("--resume_from_checkpoint=",),
    ],
)
def test_what_is_no_checkpoint_of_ours_is_the_scripts_affair(words: tuple[str, ...], tmp_path: Path) -> None:
    save(tmp_path / "out" / "step-4")
    (tmp_path / "elsewhere").mkdir()
    assert look(words, tmp_path, "fsdp") is None


def test_a_refusal_is_one_line_with_exit_code_4(tmp_path: Path) -> None:
    save(tmp_path / "step-4")
    with pytest.raises(
        PreflightError, match=r"--resume step-4 cannot be resumed under this plan \(zero3 on 2 ranks\)"
    ) as told:
        look(("--resume", "step-4"), tmp_path, "zero3")
    assert told.value.exit_code == ExitCode.PREFLIGHT
    assert "\n" not in str(told.value)


def test_another_model_is_refused_with_both_numbers(tmp_path: Path) -> None:
    save(tmp_path / "step-4", parameters=1_000_272, model_class="GPT2LMHeadModel")
    with pytest.raises(PreflightError, match="a GPT2LMHeadModel of 1,000,272 parameters, the plan is for 272"):
        look(("--resume", "step-4"), tmp_path)
    save(tmp_path / "older", parameters=None)
    assert look(("--resume", "older"), tmp_path) is not None


def test_a_damaged_one_is_refused_and_the_newest_whole_one_named(tmp_path: Path) -> None:
    save(tmp_path / "step-2", step=2)
    save(tmp_path / "step-4")
    damaged = save(tmp_path / "step-6", step=6)
    (damaged / "model.safetensors").write_bytes(bytes(999) + b"\1")
    with pytest.raises(
        PreflightError, match=r"damaged somewhere in bytes 0 to 999; the newest .* is step-4 \(step 4\)"
    ):
        look(("--resume", str(damaged)), tmp_path)
    (damaged / MANIFEST_FILE).rename(damaged / ".plan-rank-0.json")
    with pytest.raises(PreflightError, match=r"is not a complete checkpoint: it has no plan-checkpoint\.json"):
        look(("--resume", str(damaged)), tmp_path)


def test_a_later_attempt_goes_on_from_the_runs_own() -> None:
    """Not again from where the user's words began."""
    words = ("--resume_from_checkpoint", "old", "--checkpoint", "weights", "--resume=old", "--lr", "1")
    assert going_on_from(words, "/new") == (
        *("--resume_from_checkpoint", "/new", "--checkpoint", "weights", "--resume=/new", "--lr", "1"),
    )
    assert going_on_from(("--lr", "1"), "/new") == ("--lr", "1")
    assert [each.value for each in named(words)] == ["old", "weights", "old"]


@pytest.mark.parametrize(
    ("saved", "now"),
    [
        ((REPLICATED, "ddp", 2), (REPLICATED, "single", 1)),
        ((DCP, "fsdp", 2), (DCP, "fsdp", 4)),
        ((DEEPSPEED, "zero2", 2), (DEEPSPEED, "zero2", 2)),
        ((DEEPSPEED, "zero2", 2), (DEEPSPEED, None, 2)),
        ((DEEPSPEED_UNIVERSAL, "zero2", 2), (DEEPSPEED, "zero2", 4)),
    ],
)
def test_a_rank_loads_what_fits(saved: tuple, now: tuple, tmp_path: Path) -> None:
    save(tmp_path / "step-4", layout=saved[0], strategy=saved[1], world_size=saved[2])
    check_fits(tmp_path / "step-4", layout=now[0], strategy=now[1], world_size=now[2])
    check_fits(tmp_path, layout=now[0], strategy=now[1], world_size=now[2])
    check_fits(None, layout=now[0], strategy=now[1], world_size=now[2])


@pytest.mark.parametrize(
    ("saved", "now"),
    [
        ((REPLICATED, "ddp", 2), (DCP, "fsdp", 2)),
        ((DCP, "fsdp", 2), (REPLICATED, "ddp", 2)),
        ((DCP, "fsdp", 2), (DEEPSPEED, "zero3", 2)),
        ((DEEPSPEED, "zero2", 2), (DEEPSPEED, "zero2", 1)),
        ((DEEPSPEED, "zero2", 2), (DEEPSPEED, "zero3", 2)),
        ((DEEPSPEED_UNIVERSAL, "zero2", 2), (REPLICATED, "ddp", 2)),
    ],
)
def test_a_rank_refuses_what_does_not_fit(saved: tuple, now: tuple, tmp_path: Path) -> None:
    folder = save(tmp_path / "step-4", layout=saved[0], strategy=saved[1], world_size=saved[2])
    with pytest.raises(CheckpointMismatch) as raised:
        check_fits(folder, layout=now[0], strategy=now[1], world_size=now[2])
    assert raised.value.code == 4
    assert f"plan convert {folder} --to {now[1]} --ranks {now[2]}" in str(raised.value)
