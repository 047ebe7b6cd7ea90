"""A real Trainer that trains for a step and evaluates, under torch's memory profiler, in one process on the CPU."""

import tempfile
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.support.cpu_reference import Reference, mark, measure


def evaluation_bytes(reference: Reference) -> tuple[int, int]:
    """Most live bytes during the evaluation above those that stood before, and what is left of them after it."""
    sizes = np.asarray([change.nbytes for change in reference.changes], dtype=np.int64)
    live = np.cumsum(np.where(np.abs(sizes) <= 16, 0, sizes))
    start, end = reference.marks["evaluate"], reference.marks["evaluated"]
    before = int(live[start - 1])
    return int(live[start - 1 : end].max()) - before, int(live[end - 1]) - before


def evaluate_for_real(
    model: nn.Module,
    *,
    seq_len: int,
    vocab: int,
    batch: int,
    samples: int,
    keep_logits: bool,
    accumulation_steps: int | None = None,
) -> Reference:
    """One step with two samples, then an evaluation."""
    from transformers import Trainer, TrainingArguments

    class Marked(Trainer):
        def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
            mark("evaluate")
            found = super().evaluate(*args, **kwargs)
            mark("evaluated")
            return found

    generator = torch.Generator().manual_seed(2)

    def rows(count: int) -> list[dict[str, torch.Tensor]]:
        ids = torch.randint(0, vocab, (count, seq_len), generator=generator)
        return [{"input_ids": row.clone(), "labels": row.clone()} for row in ids]

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=2,
            per_device_eval_batch_size=batch,
            eval_accumulation_steps=accumulation_steps,
            max_steps=1,
            eval_strategy="steps",
            eval_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            optim="adamw_torch",
        )
        trainer = Marked(
            model=model,
            args=arguments,
            train_dataset=rows(2),
            eval_dataset=rows(samples),
            compute_metrics=(lambda _: {"none": 0.0}) if keep_logits else None,
        )
        return measure(trainer.train)


def loop_for_real(
    model: nn.Module, train: dict[str, torch.Tensor], batches: list[dict[str, torch.Tensor]]
) -> Reference:
    """A plain loop: two steps without a cache, then an evaluation with one, whose names are those of training."""
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def body() -> Any:
        for _ in range(2):
            batch = {name: value.clone() for name, value in train.items()}
            outputs = model(**batch)
            loss = outputs.loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        model.config.use_cache = True
        mark("evaluate")
        with torch.no_grad():
            for rows in batches:
                batch = {name: value.clone() for name, value in rows.items()}
                outputs = model(**batch)
                loss = outputs.loss
        mark("evaluated")
        return outputs, loss, batch

    return measure(body)
