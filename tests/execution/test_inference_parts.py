"""Pieces of a run of prompts in this process: tokenizers, stop tokens, caches, pages of weight files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_plan.executor.inference.job import InferenceJob
from gpu_plan.executor.inference.loading.checkpoint import open_checkpoint
from gpu_plan.executor.inference.loading.load import Loaded, load
from gpu_plan.executor.inference.loading.pages import forget_pages
from gpu_plan.executor.inference.prompting.decode import Ends, Item, run_batch
from gpu_plan.executor.inference.prompting.measure import Meter
from gpu_plan.executor.inference.prompting.prompts import read_prompts
from gpu_plan.executor.inference.prompting.sampling import Sampling
from gpu_plan.executor.inference.prompting.tokens import check_lengths, tokenise
from gpu_plan.planner.errors import InputError, UsageError
from tests.support.inference_runs import make_checkpoint

ITEMS = [Item(index=0, tokens=(5, 9, 33, 7)), Item(index=1, tokens=(4, 80))]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture(scope="module")
def loaded(checkpoint: Path) -> Loaded:
    job = InferenceJob(model=str(checkpoint), dtype="float32", on_cpu=True)
    return load(job, open_checkpoint(checkpoint), None)


def outputs(loaded: Loaded, **more: Any) -> tuple[tuple[int, ...], ...]:
    import torch

    options = {"new_tokens": 6, "ends": Ends(pad=0), "sampling": Sampling(), **more}
    return run_batch(loaded, ITEMS, meter=Meter(torch, ("cpu",)), **options).outputs


def test_a_stop_token_ends_its_own_prompt_only(loaded: Loaded) -> None:
    whole = outputs(loaded)
    assert [len(one) for one in whole] == [6, 6]
    stop = next(token for token in whole[0][:4] if token not in whole[1])
    first, second = outputs(loaded, ends=Ends(pad=0, stop=(stop,)))
    assert first == whole[0][: whole[0].index(stop) + 1]
    assert second == whole[1]


def test_a_static_cache_says_the_same(loaded: Loaded) -> None:
    assert outputs(loaded, cache_kind="static") == outputs(loaded)


def test_texts_go_through_the_folders_tokenizer(checkpoint: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"[UNK]": 0, "</s>": 1, "the": 2, "cat": 3, "sat": 4, "user": 5}
    inner = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    folder = tmp_path / "m"
    folder.mkdir()
    for path in checkpoint.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", unk_token="[UNK]")
    tokenizer.save_pretrained(folder)
    prompts = tmp_path / "prompts.jsonl"
    lines: list[dict[str, object]] = [{"prompt": "the cat"}, {"input_ids": [4, 4]}]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = tokenise(read_prompts(prompts), open_checkpoint(folder))
    assert [item.tokens for item in found.items] == [(2, 3), (4, 4)]
    assert found.text([4, 2]) == "sat the"
    assert found.ends == Ends(pad=0, stop=(1,))
    assert tokenise(read_prompts(prompts), open_checkpoint(folder), ignore_stop=True).ends.stop == ()
    prompts.write_text(json.dumps({"messages": [{"role": "user", "content": "the cat"}]}) + "\n")
    with pytest.raises(UsageError, match="no chat template"):
        tokenise(read_prompts(prompts), open_checkpoint(folder))
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}sat"
    tokenizer.save_pretrained(folder)
    found = tokenise(read_prompts(prompts), open_checkpoint(folder))
    assert found.items[0].tokens == (5, 2, 3, 4)
    with pytest.raises(InputError, match=r"line 1: 4 tokens and 61 new ones go beyond the model's context of 64"):
        check_lengths(read_prompts(prompts), found, open_checkpoint(folder), 61, None)


def test_a_map_from_the_plan_and_the_whole_model_say_the_same(checkpoint: Path, loaded: Loaded, tmp_path: Path) -> None:
    """Logits, not tokens alone: the same to the last bit, since the same products are computed."""
    import torch

    job = InferenceJob(model=str(checkpoint), dtype="float32", on_cpu=True)
    spread = replace(job, device_map={"model": 0, "lm_head": "disk"})
    other = load(spread, open_checkpoint(checkpoint), tmp_path)
    ids = torch.tensor([ITEMS[0].tokens])
    with torch.inference_mode():
        assert torch.equal(other.model(ids).logits, loaded.model(ids).logits)
    assert {path.name for path in tmp_path.iterdir()} == {"index.json", "lm_head.weight.dat"}


def resident(path: Path) -> int:
    """Bytes of a file's mappings that are in this process's memory."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0] and ":" not in line.split()[0]:
            inside = line.endswith(str(path))
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


def test_pages_of_a_mapped_file_are_let_go_and_come_back(tmp_path: Path) -> None:
    path, other = tmp_path / "weights", tmp_path / "other"
    values = np.arange(2**20, dtype=np.int64)
    values.tofile(path)
    values.tofile(other)
    mapped, untouched = np.memmap(path, dtype=np.int64, mode="r"), np.memmap(other, dtype=np.int64, mode="r")
    assert int(mapped.sum()) == int(untouched.sum()) == int(values.sum())
    before = resident(other)
    assert resident(path) == values.nbytes
    assert forget_pages([path]) == values.nbytes
    assert resident(path) == 0
    assert resident(other) == before
    assert np.array_equal(mapped, values)
