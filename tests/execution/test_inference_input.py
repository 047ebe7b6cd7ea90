"""What a run of prompts is refused for: one line, before anything is written. Nothing is launched here."""

import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.executor.inference.job import InferenceJob, inference_job
from gpu_plan.executor.inference.loading import room
from gpu_plan.executor.inference.loading.checkpoint import open_checkpoint
from gpu_plan.executor.inference.loading.room import check_disk
from gpu_plan.executor.inference.options import Parser, Request, add_options, read_device_map, request_of
from gpu_plan.executor.inference.prompting.prompts import read_prompts
from gpu_plan.executor.inference.start import adjusted, check_all
from gpu_plan.planner.errors import InputError, PlanError, PreflightError, UnreachableError, UsageError
from tests.support.inference_runs import infer_plan, make_checkpoint, write_prompts

LAYERS = {f"model.layers.{layer}": 0 for layer in range(4)}
REST: dict[str, int | str] = {"model.embed_tokens": 0, "model.norm": 0, "model.rotary_emb": 0, "lm_head": 0}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture
def copied(checkpoint: Path, tmp_path: Path) -> Path:
    """A checkpoint that a test may spoil."""
    folder = tmp_path / "m"
    folder.mkdir()
    for path in checkpoint.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def index_of(folder: Path) -> dict[str, object]:
    return json.loads((folder / "model.safetensors.index.json").read_text())


def write_index(folder: Path, index: dict[str, object]) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def header_of(path: Path) -> tuple[dict[str, object], bytes]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def write_shard(path: Path, header: dict[str, object], data: bytes) -> None:
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)


def truncated(folder: Path) -> None:
    path = shards(folder)[1]
    path.write_bytes(path.read_bytes()[:-100])


def cut_in_header(folder: Path) -> None:
    path = shards(folder)[1]
    path.write_bytes(path.read_bytes()[:40])


def length_bomb(folder: Path) -> None:
    path = shards(folder)[0]
    path.write_bytes(struct.pack("<Q", 2**62) + path.read_bytes()[8:])


def overlapping(folder: Path) -> None:
    """Two tensors of one size share the same bytes."""
    path = shards(folder)[0]
    header, data = header_of(path)
    alike: dict[object, str] = {}
    for name, entry in header.items():
        if name == "__metadata__" or not isinstance(entry, dict):
            continue
        key = json.dumps(entry["shape"])
        if key in alike:
            entry["data_offsets"] = header[alike[key]]["data_offsets"]  # type: ignore[index]
            break
        alike[key] = name
    write_shard(path, header, data)


def index_beyond_shards(folder: Path) -> None:
    index = index_of(folder)
    index["weight_map"]["model.extra.weight"] = shards(folder)[0].name  # type: ignore[index]
    write_index(folder, index)


def in_the_wrong_shard(folder: Path) -> None:
    index = index_of(folder)
    weights: dict[str, str] = index["weight_map"]  # type: ignore[assignment]
    weights["lm_head.weight"] = next(shard for shard in weights.values() if shard != weights["lm_head.weight"])
    write_index(folder, index)


def repeated(folder: Path) -> None:
    """The same tensor in two shards."""
    first, second = shards(folder)[:2]
    header, data = header_of(second)
    extra, more = header_of(first)
    name = next(key for key in extra if key != "__metadata__")
    entry: dict[str, object] = extra[name]  # type: ignore[assignment]
    begin, end = entry["data_offsets"]  # type: ignore[misc]
    header[name] = {**entry, "data_offsets": [len(data), len(data) + end - begin]}
    write_shard(second, header, data + more[begin:end])


def without_a_shard(folder: Path) -> None:
    shards(folder)[2].unlink()


def lacking(folder: Path) -> None:
    """Neither in the index nor in a shard: only the class knows of it."""
    index = index_of(folder)
    weights: dict[str, str] = index["weight_map"]  # type: ignore[assignment]
    path = folder / weights.pop("model.norm.weight")
    write_index(folder, index)
    header, data = header_of(path)
    entry: dict[str, object] = header.pop("model.norm.weight")  # type: ignore[assignment]
    begin, end = entry["data_offsets"]  # type: ignore[misc]
    for other in header.values():
        if isinstance(other, dict) and "data_offsets" in other and other["data_offsets"][0] >= end:
            other["data_offsets"] = [at - (end - begin) for at in other["data_offsets"]]
    write_shard(path, header, data[:begin] + data[end:])


def only_pickles(folder: Path) -> None:
    for path in (*shards(folder), folder / "model.safetensors.index.json"):
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")


def pointer(folder: Path) -> None:
    shards(folder)[0].write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def other_sizes(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 96}))


SPOILT: list[tuple[Callable[[Path], None], str]] = [
    (truncated, "does not have the bytes of its shape"),
    (cut_in_header, "its header claims"),
    (length_bomb, "its header claims 4,611,686,018,427,387,904 bytes"),
    (overlapping, "is not a usable safetensors file"),
    (index_beyond_shards, "lacks model.extra.weight"),
    (in_the_wrong_shard, "says lm_head.weight is in"),
    (repeated, "twice"),
    (without_a_shard, "lacks model-00003-of-"),
    (lacking, "lacks model.norm.weight, which LlamaForCausalLM has"),
    (only_pickles, "only pickled weights (pytorch_model.bin), which are not loaded"),
    (pointer, "git-lfs pointer"),
    (no_config, "config.json cannot be read"),
    (other_sizes, "config.json and weights are not of one model"),
]


@pytest.mark.parametrize(("spoil", "said"), SPOILT, ids=[spoil.__name__ for spoil, _ in SPOILT])
def test_a_spoilt_checkpoint_is_one_line(
    spoil: Callable[[Path], None], said: str, copied: Path, tmp_path: Path
) -> None:
    spoil(copied)
    write_prompts(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises((InputError, UnreachableError)) as refused:
        check(tmp_path, job_of(copied))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def job_of(folder: Path, **more: object) -> InferenceJob:
    return InferenceJob(
        model=str(folder),
        batch=2,
        new_tokens=6,
        context=64,
        dtype="float32",
        on_cpu=True,
        **more,  # type: ignore[arg-type]
    )


def check(folder: Path, job: InferenceJob, *words: str) -> Request:
    parser = Parser(prog="generate", allow_abbrev=False)
    add_options(parser)
    needed = ["--prompts", str(folder / "prompts.jsonl"), "--output", str(folder / "out.jsonl")]
    request = request_of(parser.parse_args([*needed, *words]))
    check_all(request, adjusted(job, request), folder)
    return request


@pytest.mark.parametrize(
    ("places", "kind", "said"),
    [
        (
            {**LAYERS, **REST, "model.layerz.0": 0},
            InputError,
            "'model.layerz.0', which LlamaForCausalLM does not",
        ),
        (
            {name: place for name, place in {**LAYERS, **REST}.items() if name != "lm_head"},
            InputError,
            "lm_head.weight",
        ),
        ({"": "tape"}, InputError, "puts the model on 'tape'"),
        ({"": -1}, InputError, "puts the model on -1"),
        ({**LAYERS, **REST, "model.layers.0.mlp": 1}, InputError, "splits model.layers.0 over GPUs [0, 1]"),
        ({**LAYERS, **REST, "lm_head": 3}, PreflightError, "names GPU 3, this machine has"),
    ],
)
def test_a_map_that_does_not_fit_is_one_line(
    places: dict[str, int | str], kind: type[PlanError], said: str, checkpoint: Path, tmp_path: Path
) -> None:
    write_prompts(tmp_path)
    job = replace(job_of(checkpoint, device_map=places), on_cpu=False)
    with pytest.raises(kind) as refused:
        check(tmp_path, job)
    assert said in str(refused.value)


def test_tied_weights_have_one_place(tmp_path: Path) -> None:
    tied = make_checkpoint(tmp_path / "tied", tie_word_embeddings=True)
    write_prompts(tmp_path)
    with pytest.raises(InputError, match=r"lm_head\.weight on disk|model\.embed_tokens\.weight on cpu"):
        check(tmp_path, job_of(tied, device_map={"model": 0, "lm_head": "disk"}))


@pytest.mark.parametrize(
    ("kind", "degrees", "said"),
    [
        (
            "llama",
            {"tensor_parallel": 4},
            "LlamaForCausalLM: 2 key-value heads do not divide by 4 tensor parallel ranks",
        ),
        ("llama", {"pipeline_parallel": 5}, "LlamaForCausalLM has 4 layers, fewer than 5 pipeline stages"),
        (
            "gpt2",
            {"pipeline_parallel": 2, "replicas": 2},
            "no pipeline stages of GPT2LMHeadModel, and accelerate's are",
        ),
        ("gpt2", {"pipeline_parallel": 5}, "GPT2LMHeadModel has 4 layers, fewer than 5 pipeline stages"),
        ("gpt2", {"tensor_parallel": 2}, "GPT2LMHeadModel has no tensor parallel plan in transformers"),
    ],
)
def test_what_cannot_be_spread_is_said_before(
    kind: str, degrees: dict[str, int], said: str, checkpoint: Path, tmp_path: Path
) -> None:
    folder = checkpoint if kind == "llama" else make_checkpoint(tmp_path / "m", kind=kind)
    write_prompts(tmp_path)
    with pytest.raises(PreflightError, match=said):
        check(tmp_path, replace(job_of(folder), **degrees))  # type: ignore[arg-type]
    check(tmp_path, job_of(folder))


def test_a_disk_without_room_is_said_before(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = shutil.disk_usage(tmp_path).free
    with pytest.raises(PreflightError, match=r"of the weights go to disk, .* free: make room"):
        check_disk(tmp_path / "not" / "there", 2 * free)
    check_disk(tmp_path, 0)
    write_prompts(tmp_path)
    monkeypatch.setattr(room, "_SLACK", 2**62)  # so much must stay free beside the weights
    with pytest.raises(PreflightError, match=r"^706\.\d KiB of the weights go to disk"):
        check(tmp_path, job_of(checkpoint, device_map={"": "disk"}))
    assert {path.name for path in tmp_path.iterdir()} == {"prompts.jsonl"}
    check(tmp_path, job_of(checkpoint))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('{"prompt": "a"', "line 1 is not valid JSON"),
        ("[1, 2]", "line 1 is not an object"),
        ('{"input_ids": [1]}\n{"input_ids": []}', "line 2: input_ids is not a list of token numbers, or an empty one"),
        ('{"input_ids": [1, -1]}', "line 1: input_ids holds '-1'"),
        ('{"input_ids": [true]}', "line 1: input_ids holds 'True'"),
        ('{"input_ids": [1], "prompt": "a"}', "line 1 has prompt and input_ids: give one of"),
        ('{"text": "a"}', "line 1 has no prompt"),
        ('{"input_ids": [1], "id": [2]}', "line 1: id is neither"),
        ('{"messages": [{"role": "user"}]}', "line 1: messages is not a list of"),
        ("", "has no prompt in it"),
        ("\n\n", "has no prompt in it"),
        ("[" * 100_000, "line 1 is nested too deeply"),
    ],
)
def test_prompts_that_make_no_sense_name_their_line(lines: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(lines)
    with pytest.raises(InputError) as refused:
        read_prompts(path)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_text_lines_are_prompts_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_bytes("one\r\n  {two}\nthré\n".encode())
    assert [(item.text, item.line) for item in read_prompts(path).items] == [("one", 1), ("  {two}", 2), ("thré", 3)]
    path.write_bytes(b"one\n\nthree\n")
    with pytest.raises(InputError, match="line 2 is empty"):
        read_prompts(path)
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(InputError, match="line 1 is not UTF-8"):
        read_prompts(path)


def test_prompts_meet_the_model_and_the_plan(checkpoint: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"input_ids": [1, 2]}\n' + json.dumps({"input_ids": [1] * 59}) + "\n")
    with pytest.raises(InputError, match=r"line 2: 59 tokens and 6 new ones go beyond the model's context of 64"):
        check(tmp_path, job_of(checkpoint))
    prompts.write_text('{"input_ids": [1, 2]}\n')
    with pytest.raises(InputError, match=r"line 1: 2 tokens and 31 new ones go beyond the plan's --context of 32"):
        check(tmp_path, replace(job_of(checkpoint), context=32), "--new-tokens", "31")
    prompts.write_text('{"input_ids": [1, 256]}\n')
    with pytest.raises(InputError, match="token 256 is beyond the vocabulary of 256"):
        check(tmp_path, job_of(checkpoint))
    prompts.write_text('{"prompt": "hello"}\n')
    with pytest.raises(UsageError, match="has no tokenizer"):
        check(tmp_path, job_of(checkpoint))


def test_an_output_that_is_there_is_asked_about(checkpoint: Path, tmp_path: Path) -> None:
    write_prompts(tmp_path, 2)
    (tmp_path / "out.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match="is there already: give --force"):
        check(tmp_path, job_of(checkpoint))
    with pytest.raises(UsageError, match="--resume finds nothing to go on from"):
        check(tmp_path, job_of(checkpoint), "--resume")
    check(tmp_path, job_of(checkpoint), "--force")
    (tmp_path / "out.jsonl").write_text("{}\n{}\n")
    check(tmp_path, job_of(checkpoint), "--resume")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--force", "--resume"), "leave one out"),
        (("--batch", "0"), "--batch 0 is not a positive number"),
        (("--temperature", "nan"), "is not a number of 0 or more"),
        (("--temperature", "-1"), "is not a number of 0 or more"),
        (("--top-k", "5"), "give a --temperature above 0"),
        (("--top-p", "0", "--temperature", "1"), "--top-p is above 0"),
        (("--batch", "many"), "invalid int value"),
        (("--promts", "x"), "unrecognized arguments: --promts x"),
    ],
)
def test_options_that_make_no_sense(words: tuple[str, ...], said: str, checkpoint: Path, tmp_path: Path) -> None:
    write_prompts(tmp_path, 2)
    with pytest.raises(UsageError) as refused:
        check(tmp_path, job_of(checkpoint), *words)
    assert said in str(refused.value)


def test_a_map_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text('{"": "disk"}')
    assert read_device_map(path) == {"": "disk"}
    for text, said in (("[]", "is not a device map"), ('{"a": true}', "puts a on True"), ("{", "is not valid JSON")):
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            read_device_map(path)
    with pytest.raises(UnreachableError, match="cannot be read"):
        read_device_map(tmp_path / "none.json")


def test_a_plan_of_training_runs_no_prompts() -> None:
    from tests.support.tiny_plan import tiny_plan

    with pytest.raises(InputError, match="the plan is for --task train"):
        inference_job(tiny_plan())


def test_what_a_plan_says_of_stages(checkpoint: Path) -> None:
    stages = {f"model.layers.{layer}": f"cuda:{int(layer > 0)}" for layer in range(4)}
    job = inference_job(infer_plan(checkpoint, pipeline=2, device_map=stages))
    assert (job.stages, job.layout, job.device_map, job.world_size) == ((1, 3), "pipeline", {}, 2)
    spilled = {"model": "cuda:0", "lm_head": "disk"}
    job = inference_job(infer_plan(checkpoint, device_map=spilled))
    assert job.places == {"model": "cpu", "lm_head": "disk"}
    assert job.offloads
    assert open_checkpoint(checkpoint).bytes == 4 * 180_800
