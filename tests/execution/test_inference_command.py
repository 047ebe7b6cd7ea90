"""`--execute @generate` from the command line: what it refuses, with which code, and that nothing is left behind."""

import json
from pathlib import Path

import pytest

from gpu_plan.executor.inference.prompting.sampling import Sampling, processors
from tests.support.inference_runs import execute, infer_plan, make_checkpoint, results, write_plan, write_prompts


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / "m")


@pytest.mark.slow
def test_a_refusal_is_one_line_with_its_code_and_no_run(checkpoint: Path, tmp_path: Path) -> None:
    """The child that looks is a real one."""
    write_prompts(tmp_path)
    plan = write_plan(tmp_path, infer_plan(checkpoint))
    (tmp_path / "map.json").write_text(json.dumps({"model": 0, "lm_head": "disc"}))
    words = ["--prompts", "prompts.jsonl", "--output", "out.jsonl", "--device-map", "map.json"]
    done = execute(tmp_path, plan, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.strip().splitlines()[-1] == (
        "plan: error: the device map puts lm_head on 'disc': a GPU's number, cpu or disk"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map.json", "plan.json", "prompts.jsonl"]


def test_a_dry_run_shows_the_command_and_writes_nothing(checkpoint: Path, tmp_path: Path) -> None:
    plan = write_plan(tmp_path, infer_plan(checkpoint, tensor=2))
    done = execute(tmp_path, plan, "--prompts", "p", "--output", "o", options=["--dry-run"])
    assert done.returncode == 0, done.stderr
    assert "torch.distributed.run --standalone --nproc-per-node 2" in done.stdout
    assert "-m gpu_plan.executor.runner" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--prompts", "none.jsonl", "--output", "out.jsonl"], 3, "there is no"),
        (["--prompts", "prompts.jsonl", "--output", "no/out.jsonl"], 3, "there is no folder"),
        (["--prompts", "prompts.jsonl"], 2, "@generate: the following arguments are required: --output"),
        (["--prompts", "prompts.jsonl", "--output", "out.jsonl", "--new-tokens", "60"], 2, "line 1: "),
        (["--prompts", "prompts.jsonl", "--output", "out.jsonl", "--model", "nowhere"], 3, "cannot be reached"),
    ],
)
def test_codes_of_refusals(words: list[str], code: int, said: str, checkpoint: Path, tmp_path: Path) -> None:
    write_prompts(tmp_path)
    plan = write_plan(tmp_path, infer_plan(checkpoint))
    done = execute(tmp_path, plan, *words)
    assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (code, True, False), done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_other_runners_and_other_plans(checkpoint: Path, tmp_path: Path) -> None:
    from tests.support.tiny_plan import tiny_plan

    plan = write_plan(tmp_path, infer_plan(checkpoint))
    done = execute(tmp_path, plan, script="@serve")
    assert (done.returncode, "@generate is the only built-in runner" in done.stderr) == (2, True)
    (tmp_path / "t").mkdir()
    trained = write_plan(tmp_path / "t", tiny_plan())
    done = execute(tmp_path, trained, "--prompts", "p", "--output", "o")
    assert done.returncode == 2
    assert "stale" in done.stderr or "plan with --task infer" in done.stderr


@pytest.mark.slow
def test_a_resumed_output_that_is_done_is_left_alone(checkpoint: Path, tmp_path: Path) -> None:
    write_prompts(tmp_path, 3)
    plan = write_plan(tmp_path, infer_plan(checkpoint))
    words = ["--prompts", "prompts.jsonl", "--output", "out.jsonl"]
    assert execute(tmp_path, plan, *words).returncode == 0
    first = (tmp_path / "out.jsonl").stat().st_mtime_ns
    assert execute(tmp_path, plan, *words).returncode == 2
    assert execute(tmp_path, plan, *words, "--resume").returncode == 0
    assert (tmp_path / "out.jsonl").stat().st_mtime_ns == first


@pytest.mark.slow
def test_samples_do_not_depend_on_batch_or_rank(checkpoint: Path, tmp_path: Path) -> None:
    """Seed and prompt settle a text: in batches of one, of three, and shared by two replicas."""
    said = []
    for name, plan in {"one": {"batch": 1}, "three": {"batch": 3}, "shared": {"batch": 2, "replicas": 2}}.items():
        folder = tmp_path / name
        folder.mkdir()
        write_prompts(folder)
        path = write_plan(folder, infer_plan(checkpoint, **plan))
        words = ["--prompts", "prompts.jsonl", "--output", "out.jsonl", "--temperature", "0.8", "--seed", "11"]
        done = execute(folder, path, *words)
        assert done.returncode == 0, done.stderr
        said.append(results(folder / "out.jsonl"))
    assert said[0] == said[1] == said[2]


def test_sampling_draws_from_the_softmax() -> None:
    """Frequencies of 4,000 prompts' first tokens against the probabilities: chi squared, 7 degrees of freedom."""
    import torch

    logits = torch.linspace(-1.5, 1.5, 8)
    sampling = Sampling(temperature=0.7, seed=3)
    count = 4000
    (warp, *_, noise) = processors(sampling, range(count))
    scores = noise(None, warp(None, logits.expand(count, -1)))
    found = torch.bincount(scores.argmax(-1), minlength=8).double()
    expected = torch.softmax(logits.double() / 0.7, -1) * count
    assert float(((found - expected) ** 2 / expected).sum()) < 24.3  # exceeded by chance once in a thousand seeds
    again = processors(sampling, range(count))[-1]
    assert torch.equal(again(None, warp(None, logits.expand(count, -1))), scores)


def test_sampling_keeps_to_the_likeliest() -> None:
    import torch

    scores = torch.tensor([[0.0, 1.0, 2.0, 3.0]] * 500)
    for part in processors(Sampling(temperature=1.0, top_k=2), range(500)):
        scores = part(None, scores)
    assert set(scores.argmax(-1).tolist()) == {2, 3}
    assert processors(Sampling(), [0]) == []
