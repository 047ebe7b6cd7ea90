"""A job of several models, composed on one device, against a real loop of the same phases on the CPU.

The loop trains a policy and a critic beside a frozen reference, each phase in a function of its own; compared is the
most that stands in each phase of its second iteration above what was there once the models were built.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForTokenClassification

from gpu_plan.planner.job.prepared import Openers
from gpu_plan.planner.job.ready import prepared
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.options.cluster import find_cluster
from gpu_plan.planner.options.request import Request
from gpu_plan.planner.search.training.candidates import Batch
from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category, IntArray
from tests.support.cpu_reference import Reference, mark, measure
from tests.support.replay_cpu import counted

ROWS, PROMPT, COMPLETION = 2, 16, 24
TOKENS = PROMPT + COMPLETION
SIZES: dict[str, Any] = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "tie_word_embeddings": False, "pad_token_id": 0,
}  # fmt: skip
JOB = f"""
prompt_len = {PROMPT}
completion_len = {COMPLETION}
[models.policy]
model = "own"
train = true
precision = "fp32"
optimizer = "adamw-forloop"
strategy = "single"
[models.critic]
model = "own"
train = true
head = "value"
precision = "fp32"
optimizer = "adamw-forloop"
[models.reference]
model = "own"
precision = "fp32"
between = "BETWEEN"
[[phases]]
name = "scoring"
does = "forward"
models = ["reference"]
micro_batch = 3
[[phases]]
name = "values"
does = "train"
models = ["critic"]
[[phases]]
name = "update"
does = "train"
models = ["policy"]
micro_batch = {ROWS}
"""


def folder(tmp_path: Path, between: str) -> Path:
    (tmp_path / "own").mkdir()
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SIZES}
    (tmp_path / "own" / "config.json").write_text(json.dumps(config))
    path = tmp_path / "job.toml"
    path.write_text(JOB.replace("BETWEEN", between))
    return path


def composed(path: Path) -> RankStream:
    request = Request(
        model=str(path), gpus="cpu", words=(), settings=("clip.max_norm=0",), pinned=True, explain=False,
        trust_remote_code=False, revision=None, use_cache=False, command="",
    )  # fmt: skip
    task = prepared(request, find_cluster("cpu"), resolve(str(path)), print, Openers()).task
    family = next(iter(task.families()))
    stream: RankStream = task.evaluator.judge(family, Batch(micro_batch=ROWS, accumulation_steps=1)).stream
    return stream


def planned(stream: RankStream) -> dict[str, int]:
    """By phase: most requested bytes above weights and buffers that stand from the start."""
    sizes = counted(stream.requested(ROWS))
    live = np.cumsum(stream.event_sign * sizes[stream.event_tensor])
    loaded = _loaded(stream, sizes)
    named = {name: stream.event_segment == segment for segment, name in stream.names}
    named["update"] = (stream.event_segment > stream.step_segments[0]) & (
        stream.event_segment <= stream.step_segments[-1]
    )
    return {name: int(live[inside].max()) - loaded for name, inside in named.items()}


def _loaded(stream: RankStream, sizes: IntArray) -> int:
    kinds = [CATEGORY_INDEX[Category.PARAMETERS], CATEGORY_INDEX[Category.BUFFERS]]
    start = (stream.event_segment == 0) & (stream.event_sign > 0)
    tensors = stream.event_tensor[start]
    return int(sizes[tensors][np.isin(stream.category[tensors], kinds)].sum())


def run(models: dict[str, nn.Module]) -> Reference:
    optimizers = {role: torch.optim.AdamW(models[role].parameters(), foreach=False) for role in ("policy", "critic")}

    def scoring() -> None:
        with torch.no_grad():
            outputs = models["reference"](input_ids=torch.zeros(3, TOKENS, dtype=torch.int64), use_cache=False)
        del outputs

    def update(role: str, classes: int) -> None:
        batch = {name: torch.zeros(ROWS, TOKENS, dtype=torch.int64) for name in ("input_ids", "labels")}
        batch["labels"] %= classes
        outputs = models[role](**batch, use_cache=False)
        outputs.loss.backward()
        optimizers[role].step()
        optimizers[role].zero_grad()

    def body() -> None:
        for iteration in range(2):
            for name, phase in (
                ("update", lambda: update("policy", 512)),
                ("scoring", scoring),
                ("values", lambda: update("critic", 1)),
            ):
                mark(f"{name}:{iteration}")
                phase()
        mark("end")

    return measure(body)


def real(reference: Reference) -> dict[str, int]:
    sizes = counted(np.asarray([change.nbytes for change in reference.changes], dtype=np.int64))
    live = np.cumsum(sizes)
    order = ["update:1", "scoring:1", "values:1", "end"]
    at = [reference.marks[name] for name in order]
    return {
        name.partition(":")[0]: int(live[first:last].max())
        for name, first, last in zip(order, at, at[1:], strict=False)
    }


@pytest.fixture(scope="module")
def measured() -> dict[str, int]:
    torch.manual_seed(0)
    config = LlamaConfig(**SIZES)
    valued = LlamaConfig(**SIZES, num_labels=1)
    models = {
        "policy": LlamaForCausalLM(config).train(),
        "critic": LlamaForTokenClassification(valued).train(),
        "reference": LlamaForCausalLM(config).eval(),
    }
    return real(run(models))


def test_every_phase_peaks_as_it_really_does(tmp_path: Path, measured: dict[str, int]) -> None:
    assert planned(composed(folder(tmp_path, "device"))) == measured


def test_what_lies_on_the_host_leaves_the_other_phases(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    here, there = composed(folder(tmp_path / "here", "device")), composed(folder(tmp_path / "there", "host"))
    sizes = counted(here.requested(ROWS))
    weights = sum(p.numel() * 4 for p in LlamaForCausalLM(LlamaConfig(**SIZES)).parameters())
    loaded = _loaded(here, sizes) - _loaded(there, counted(there.requested(ROWS)))
    assert weights <= loaded < weights + 4096
    resting, away = planned(here), planned(there)
    assert resting["update"] == away["update"]  # Above what is loaded, which it is not.
    assert away["scoring"] == resting["scoring"] + loaded
