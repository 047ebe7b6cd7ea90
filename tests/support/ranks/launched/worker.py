"""A rank whose models are cut as `plan --execute` cuts them: what a loop sees of them, and of the whole ones (I/O).

python -m tests.support.ranks.launched.worker FOLDER RANK WORLD_SIZE
"""

import copy
import json
import os
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gpu_plan.executor.runner.parallel.piped.layout import Layout
from gpu_plan.executor.runner.parallel.piped.norms import across_stages
from gpu_plan.executor.runner.parallel.piped.run import PipedModel
from gpu_plan.planner.model.build.construct import build_model
from tests.accuracy.architectures import ARCHITECTURES

LAYERS, LENGTH, ROWS, STEPS = 4, 24, 8, 3
FLAT = Layout(schedule="Schedule1F1B", ranks=2, pipelines=1, micro_batches=4, stages=((0, 1), (1, 4)))
INTERLEAVED = Layout(
    schedule="ScheduleInterleaved1F1B",
    ranks=2,
    pipelines=1,
    micro_batches=4,
    stages=((0, 1), (1, 2), (2, 3), (3, 4)),
)
CASES: dict[str, tuple[str, Layout]] = {
    "tied": ("qwen2", FLAT),
    "interleaved": ("gpt2", INTERLEAVED),
    "ragged": ("llama-3", FLAT),
    "divided": ("llama-3", FLAT),
}
REFUSALS = ("no labels", "logits", "other samples", "saved alone")
Loop = Callable[[Any, bool], list[float]]


def model_of(architecture: str) -> Any:
    """Four layers without dropout, on the CPU, the same weights on every rank."""
    if architecture == "gpt2":
        changes: dict[str, Any] = {"n_layer": LAYERS, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    else:
        changes = {"num_hidden_layers": LAYERS}
    torch.manual_seed(3)
    model = build_model(ARCHITECTURES[architecture].config(**changes)).to_empty(device="cpu")
    model.init_weights()
    for module in model.modules():  # what no weights file holds
        if hasattr(module, "inv_freq"):
            again = type(module)(model.config)
            module.load_state_dict(again.state_dict(), strict=False)
            for name, each in again.named_buffers(recurse=False):
                module._buffers[name] = each
    return model.float().train()


def batches(name: str) -> list[dict[str, torch.Tensor]]:
    """Padded on the right, so that micro batches have other numbers of tokens; `ragged` ends with five rows."""
    generator = torch.Generator().manual_seed(5)
    found = []
    for step in range(STEPS):
        rows = 5 if name == "ragged" and step == STEPS - 1 else ROWS
        ids = torch.randint(5, 250, (rows, LENGTH), generator=generator)
        mask, labels = torch.ones_like(ids), ids.clone()
        for row in range(rows):
            left = int(torch.randint(0, LENGTH // 2, (1,), generator=generator))
            mask[row, LENGTH - left :] = 0
            labels[row, LENGTH - left :] = -100
        found.append({"input_ids": ids, "attention_mask": mask, "labels": labels})
    return found


def trained(name: str, model: Any) -> list[float]:
    """Losses, norms before clipping, and at last a loss without gradients."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found, parts = [], 2 if name == "divided" else 1
    data = batches(name)
    for batch in data:
        for _ in range(parts):
            loss = model(**batch).loss / parts
            if parts == 1:
                optimizer.zero_grad()  # between forward and backward, as many loops have it
            loss.backward()
            found.append(float(loss))
        found.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        seen = model(**data[0])
    return [*found, float(seen.loss), float(seen.logits.float().std())]


def refused(what: str, rank: int) -> str:
    """The words of the error that a misuse ends in."""
    model = model_of("llama-3")
    PipedModel(model, FLAT)
    batch = batches("tied")[0]
    try:
        if what == "no labels":
            model(input_ids=batch["input_ids"])
        elif what == "logits":
            _ = model(**batch).logits
        elif what == "other samples":
            model(**{**batch, "input_ids": batch["input_ids"] + rank})
        else:
            model.save_pretrained("nowhere")
    except RuntimeError as problem:
        return str(problem)
    return ""


def main(folder: Path, rank: int, world_size: int) -> None:
    """Runs all cases, one after the other."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank), GPU_PLAN_CPU_RANKS="1")
    store = dist.FileStore(str(folder / "meeting"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=900))
    found: dict[str, Any] = {}
    try:
        for name, (architecture, _) in CASES.items():
            found[name] = {"one": trained(name, model_of(architecture))}
        across_stages(torch)
        for name, (architecture, layout) in CASES.items():
            model = model_of(architecture)
            whole = copy.deepcopy(model.state_dict())
            stages = PipedModel(model, layout)
            if name == "interleaved":
                weights = stages.whole_weights()
                found["weights"] = [key for key, each in weights.items() if not torch.equal(each, whole[key])]
                found["names"] = sorted(set(whole) - set(weights))
            found[name]["stages"] = trained(name, model)
            found[name]["held"] = sum(each.numel() for each in model.parameters())
            found[name]["all"] = sum(each.numel() for each in model_of(architecture).parameters())
        for what in REFUSALS:
            found[what] = refused(what, rank)
    except Exception:
        found["error"] = traceback.format_exc()
    (folder / f"rank-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    os._exit(0)
