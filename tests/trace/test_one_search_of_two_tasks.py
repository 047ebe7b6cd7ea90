"""A generation goes through the search that a training step goes through: notes, settings, pictures, warnings alike."""

import json
import os
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from gpu_plan.cli import main
from gpu_plan.commands.job.asking import find_plans
from gpu_plan.planner.options.words import main_parser

ROOT = Path(__file__).resolve().parents[2]
TINY = str(ROOT / "examples" / "tiny-llama")
JOBS = {
    "train": ("--seq-len", "64", "--pin"),
    "infer": ("--task", "infer", "--context", "64", "--pin"),
}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """One cache for this module: each step is traced once."""
    before = os.environ["GPU_PLAN_CACHE"]
    os.environ["GPU_PLAN_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    os.environ["GPU_PLAN_CACHE"] = before


def answer(*words):
    return find_plans(main_parser().parse_args(words), words)


@pytest.mark.parametrize("task", JOBS)
def test_settings_of_the_machine_are_told_beside_every_plan(task):
    words = (TINY, "--gpus", "1xT4", *JOBS[task], "--set", "memory.reserve=2GiB")
    texts = [one.text for one in answer(*words, "--set", "alloc.expandable_segments=true").document.assumptions]
    assert "memory.reserve: 2.00 of each device's 14.56 GiB are kept free for others" in texts
    assert "the job runs with PYTORCH_ALLOC_CONF=expandable_segments:True" in texts


@pytest.mark.parametrize("task", JOBS)
def test_pictures_are_of_the_allocator_that_was_asked_for(task):
    """A generation's snapshot once ignored `--set alloc.*`, which the figures beside it followed."""

    def grows(*words):
        args = main_parser().parse_args([TINY, "--gpus", "1xT4", *JOBS[task], "--snapshot", "x.pickle", *words])
        found = find_plans(args, words)
        peak = found.document.plans[0].memory.peak_reserved_bytes
        return found.snapshot["segments"], peak

    fixed, _ = grows()
    growing, peak = grows("--set", "alloc.expandable_segments=true")
    assert not any(segment["is_expandable"] for segment in fixed)
    assert all(segment["is_expandable"] for segment in growing)
    assert 0 < sum(segment["total_size"] for segment in growing) <= peak


@pytest.mark.slow
@pytest.mark.parametrize("task", JOBS)
def test_what_is_pinned_and_does_not_fit_is_drawn_as_it_runs_out(task):
    args = main_parser().parse_args([TINY, "--gpus", "1xT4", *JOBS[task], "--plot", "a.csv", "--set", RESERVE])
    found = find_plans(args, ())
    assert found.document.plans == ()
    assert found.timeline is not None
    assert found.document.nearest_change.startswith("without --set memory.reserve it would fit")


RESERVE = "memory.reserve=14.5GiB"
"""Of 14.56 GiB: what is left holds no CUDA context."""


@pytest.mark.parametrize("task", JOBS)
def test_reasons_name_the_plan_that_rests_on_them(task):
    few = {"train": ("--micro-batch", "4", "--checkpointing", "none"), "infer": ()}
    document = answer(TINY, "--gpus", "2xT4", *JOBS[task][:-1], *few[task]).document
    title = {
        "train": ("DDP: ", "FSDP2: ", "ZeRO"),
        "infer": ("2 replicas: ", "tensor parallel", "pipeline", "device map"),
    }
    read = [one.text for one in document.assumptions if one.basis == "source" and one.text.startswith(title[task])]
    first = next((index for index, one in enumerate(document.assumptions) if one.text in read), 0)
    assert first == 0, "what the best plan rests on comes first"


@pytest.mark.parametrize("task", JOBS)
def test_a_checkpoint_that_is_not_the_model_is_told_of_either_task(task, tmp_path, capsys):
    import numpy

    (tmp_path / "config.json").write_text(Path(TINY, "config.json").read_text())
    save_file({"model.embed_tokens.weight": numpy.zeros((4, 4), dtype=numpy.float32)}, tmp_path / "model.safetensors")
    assert main([str(tmp_path), "--gpus", "1xT4", *JOBS[task], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"]
