"""Prompts through real processes: what comes out is what the whole model would have said, whatever happens between."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.executor.read_run import read_whole
from gpu_plan.executor.run_folder import find
from gpu_plan.reports.run.compare import compare_run
from gpu_plan.reports.run.text import render_run_text
from tests.support.inference_runs import execute, infer_plan, make_checkpoint, results, write_plan, write_prompts

SCRIPTS = Path(__file__).with_name("scripts")
NEW = 6
LAYERS_ON_DISK = {
    "model.embed_tokens": "cuda:0",
    "model.layers.0": "cuda:0",
    "model.layers.1": "disk",
    "model.layers.2": "disk",
    "model.layers.3": "cuda:0",
    "model.norm": "cuda:0",
    "model.rotary_emb": "cuda:0",
    "lm_head": "disk",
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture(scope="module")
def expected(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """Each prompt alone through the whole model, by transformers' own `from_pretrained` and `generate`."""
    return spoken(checkpoint, write_prompts(tmp_path_factory.mktemp("prompts")))


def spoken(checkpoint: Path, prompts: Path, new: int = NEW, **more: Any) -> list[dict[str, object]]:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    found = []
    for index, line in enumerate(prompts.read_text().splitlines()):
        prompt = json.loads(line)
        ids = torch.tensor([prompt["input_ids"]])
        with torch.inference_mode():
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, pad_token_id=0, **more
            )
        tokens = out[0, ids.shape[1] :].tolist()
        found.append(
            {
                "index": index,
                "id": prompt["id"],
                "output_ids": tokens,
                "prompt_tokens": ids.shape[1],
                "finish": "length",
            }
        )
    return found


def run(folder: Path, checkpoint: Path, *words: str, script: str = "@generate", **plan: Any) -> Any:
    write_prompts(folder)
    path = write_plan(folder, infer_plan(checkpoint, new_tokens=NEW, **plan))
    done = execute(folder, path, "--prompts", "prompts.jsonl", "--output", "out.jsonl", *words, script=script)
    assert done.returncode == 0, done.stdout + done.stderr
    return read_whole(find("latest", folder))


@pytest.mark.slow
def test_weights_over_cpu_and_disk_say_the_same(
    tmp_path: Path, checkpoint: Path, expected: list[dict[str, object]]
) -> None:
    whole = run(tmp_path, checkpoint, "--offload-folder", "spill", device_map=LAYERS_ON_DISK)
    assert results(tmp_path / "out.jsonl") == expected
    assert [attempt.cause for attempt in whole.record.attempts] == ["success"]
    held = {device.device: device.weight_bytes for device in whole.ranks[0].inference.devices}
    assert held["cpu"] + held["disk"] == 4 * 180_800
    assert held["disk"] == 4 * (2 * 36_992 + 256 * 64)
    text = render_run_text(whole, compare_run(whole))
    assert "decode tokens/s" in text
    assert "disk weights" in text


@pytest.mark.slow
def test_a_kill_in_the_midst_of_a_line_loses_nothing(
    tmp_path: Path, checkpoint: Path, expected: list[dict[str, object]]
) -> None:
    """Over CPU and disk; the second attempt goes on, and nothing but the output is left."""
    script = str(SCRIPTS / "prompts_torn.py")
    whole = run(tmp_path, checkpoint, "--offload-folder", "spill", script=script, device_map=LAYERS_ON_DISK)
    assert results(tmp_path / "out.jsonl") == expected
    first, second = whole.record.attempts
    assert (first.cause, first.culprit, second.cause) == ("signal", 0, "success")
    rank = whole.ranks[0]
    # Batches of two: prompts 0 to 3 were done, 4 was torn.
    assert (rank.inference.done_before, rank.inference.done, second.first_step) == (4, 3, 3)
    assert {path.name for path in tmp_path.iterdir()} == {"plan.json", "prompts.jsonl", "out.jsonl", "runs", "spill"}
    assert list((tmp_path / "spill").iterdir()) == []
    held = {device.device: device.weight_bytes for device in rank.inference.devices}
    assert held["cpu"] + held["disk"] == 4 * 180_800
    assert held["disk"] == 4 * (2 * 36_992 + 256 * 64)


@pytest.mark.slow
def test_shards_of_tensor_parallel_say_the_same(
    tmp_path: Path, checkpoint: Path, expected: list[dict[str, object]]
) -> None:
    whole = run(tmp_path, checkpoint, tensor=2)
    assert results(tmp_path / "out.jsonl") == expected
    half = [rank.inference.devices[0].weight_bytes for rank in whole.ranks]
    # Norms are whole on each rank, everything else is halved.
    assert half == [4 * (180_800 - 576) // 2 + 4 * 576] * 2
    assert [rank.inference.done for rank in whole.ranks] == [7, 7]


@pytest.mark.slow
def test_stages_of_a_pipeline_say_the_same(tmp_path: Path, checkpoint: Path, expected: list[dict[str, object]]) -> None:
    """Uneven stages, and a KV cache on the later ones."""
    stages = {f"model.layers.{layer}": f"cuda:{int(layer > 0)}" for layer in range(4)}
    whole = run(tmp_path, checkpoint, pipeline=2, device_map=stages)
    assert results(tmp_path / "out.jsonl") == expected
    embedding, layer = 256 * 64, 36_992
    assert [rank.inference.devices[0].weight_bytes for rank in whole.ranks] == [
        4 * (embedding + layer),
        4 * (embedding + 3 * layer + 64),
    ]


@pytest.mark.slow
def test_stages_of_a_class_that_transformers_does_not_cut(tmp_path: Path) -> None:
    """GPT-2, through accelerate's prepare_pippy; seven prompts in batches of two, the last of one."""
    checkpoint = make_checkpoint(tmp_path / "m", kind="gpt2", num_hidden_layers=3)
    whole = run(tmp_path, checkpoint, pipeline=2, context=24)
    assert {rank.inference.loaded_by for rank in whole.ranks} == {"prepare_pippy"}
    assert results(tmp_path / "out.jsonl") == spoken(checkpoint, tmp_path / "prompts.jsonl")


@pytest.mark.slow
def test_replicas_share_the_prompts(tmp_path: Path, checkpoint: Path, expected: list[dict[str, object]]) -> None:
    whole = run(tmp_path, checkpoint, replicas=2, device_map=LAYERS_ON_DISK)
    assert results(tmp_path / "out.jsonl") == expected
    assert sorted(rank.inference.done for rank in whole.ranks) == [3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tensor", "pipeline", "replicas"])
def test_four_processes(kind: str, tmp_path: Path) -> None:
    """Four key-value heads, so that each of four shards has one."""
    checkpoint = make_checkpoint(tmp_path / "m4", num_key_value_heads=4)
    whole = run(tmp_path, checkpoint, **{kind: 4})
    assert len(whole.ranks) == 4
    assert results(tmp_path / "out.jsonl") == spoken(checkpoint, tmp_path / "prompts.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tensor", "pipeline"])
def test_replicas_of_several_processes(
    kind: str, tmp_path: Path, checkpoint: Path, expected: list[dict[str, object]]
) -> None:
    whole = run(tmp_path, checkpoint, **{kind: 2}, replicas=2)
    assert results(tmp_path / "out.jsonl") == expected
    assert [rank.inference.done for rank in whole.ranks] == [4, 4, 3, 3]


@pytest.mark.slow
def test_tied_weights_and_a_window(tmp_path: Path) -> None:
    """Gemma-3's sliding and full layers, its head tied to the embedding: as stages and from the disk."""
    checkpoint = make_checkpoint(
        tmp_path / "g", kind="gemma3_text", head_dim=16, sliding_window=8, sliding_window_pattern=2, vocab_size=256
    )
    expected = spoken(checkpoint, write_prompts(tmp_path))
    for name, plan in {"pp": {"pipeline": 2}, "disk": {"device_map": {"": "disk"}}}.items():
        folder = tmp_path / name
        folder.mkdir()
        run(folder, checkpoint, **plan)
        assert results(folder / "out.jsonl") == expected, name


@pytest.mark.slow
@pytest.mark.parametrize("plan", [{"device_map": LAYERS_ON_DISK}, {"pipeline": 2}, {"replicas": 2}], ids=str)
def test_the_example_script_runs_under_any_plan(
    plan: dict[str, Any], tmp_path: Path, checkpoint: Path, expected: list[dict[str, object]]
) -> None:
    """A script of the user's own that loads the planned model and keeps its own kind of results."""
    import torch
    from transformers import AutoModelForCausalLM

    script = Path(__file__).parents[2] / "examples" / "generate.py"
    write_prompts(tmp_path)
    path = write_plan(tmp_path, infer_plan(checkpoint, new_tokens=NEW, **plan))
    done = execute(tmp_path, path, "prompts.jsonl", "out.jsonl", script=str(script))
    assert done.returncode == 0, done.stderr
    found = results(tmp_path / "out.jsonl")
    assert [line["output_ids"] for line in found] == [line["output_ids"] for line in expected]
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    first = json.loads((tmp_path / "prompts.jsonl").read_text().splitlines()[0])["input_ids"]
    with torch.inference_mode():
        whole = torch.log_softmax(model(torch.tensor([first + expected[0]["output_ids"]])).logits[0], -1)  # type: ignore[operator]
    chances = [
        float(whole[len(first) - 1 + at, token])
        for at, token in enumerate(expected[0]["output_ids"])  # type: ignore[arg-type]
    ]
    torch.testing.assert_close(torch.tensor(found[0]["log_probabilities"]), torch.tensor(chances), atol=1e-4, rtol=1e-4)
