"""The cells of the matrix in one process of plain torch: no Accelerate, no Trainer, no engine, no plan."""

import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path
from unittest.mock import patch

from tests.support.matrix import GLOBAL_BATCH, SCRIPTS, STEPS, Cell, Variation


def reference(cell: Cell, model: Path) -> tuple[float, ...]:
    """The loss of each step, of all ranks together, as one plain process makes it of the same samples."""
    return _losses(cell.loop == "trainer", cell.what, cell.groups * cell.micro_batch, cell.accumulation, model)


@cache
def _losses(trainer: bool, what: Variation, batch: int, accumulation: int, model: Path) -> tuple[float, ...]:
    return tuple(train(str(model), trainer=trainer, batch=batch, accumulation=accumulation, **asdict(what)))


def train(
    model: str, *, trainer: bool, batch: int, accumulation: int, clip: float, decay: float, dropout: float,
    random_dropout: float, schedule: bool,
) -> list[float]:  # fmt: skip
    """One epoch. An incomplete last step counts in full under the Trainer, which knows its tokens; by Accelerate's way
    of dividing each loss by the accumulation, in part."""
    import torch

    with patch.object(sys, "path", [str(SCRIPTS), *sys.path]):
        import tiny

    torch.set_num_threads(1)
    net = tiny.load_model(model, dropout, random_dropout).train()
    steps = GLOBAL_BATCH // batch * 4 + 1
    data = tiny.Tokens(net.config.vocab_size, batch * steps)
    names = dict(net.named_parameters())
    # transformers trainer.py: get_decay_parameter_names leaves norms and biases out.
    spared = [name for name in names if trainer and ("norm" in name or "bias" in name)]
    groups = [
        {"params": [value for name, value in names.items() if name not in spared], "weight_decay": decay},
        {"params": [names[name] for name in spared], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=tiny.LEARNING_RATE)
    total = STEPS if trainer else tiny.DECAYED
    torch.manual_seed(7)
    batches = list(torch.utils.data.DataLoader(data, batch_size=batch))
    found = []
    for step, start in enumerate(range(0, len(batches), accumulation)):
        window = batches[start : start + accumulation]
        for group in optimizer.param_groups:
            group["lr"] = tiny.LEARNING_RATE * (tiny.rate_at(step, total) if schedule else 1.0)
        whole = 0.0
        for inputs in window:
            loss = net(**inputs).loss / (len(window) if trainer else accumulation)
            loss.backward()
            whole += loss.item()
        if clip:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        found.append(whole)
    return found
