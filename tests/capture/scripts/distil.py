"""Distillation with Accelerate: a frozen teacher, a student, dynamic padding, evaluation before training."""

import torch
from accelerate import Accelerator
from torch.nn import functional as F
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup


def collate(rows: list[list[int]]) -> dict[str, torch.Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": ids[:, 0] % 3}


def classifier(layers: int) -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=64,
        num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def main() -> None:
    accelerator = Accelerator()
    torch.manual_seed(0)
    student, teacher = classifier(2), classifier(4).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4)
    rows = [[1 + (i + j) % 199 for j in range(20 + i % 5)] for i in range(64)]
    loader = DataLoader(rows, batch_size=8, collate_fn=collate)
    schedule = get_linear_schedule_with_warmup(optimizer, 1, 10)
    student, optimizer, loader, schedule = accelerator.prepare(student, optimizer, loader, schedule)
    teacher.to(accelerator.device)

    student.eval()
    right = 0
    with torch.no_grad():
        for batch in loader:
            scores = student(**batch).logits
            guesses, labels = accelerator.gather_for_metrics((scores.argmax(-1), batch["labels"]))
            right += int((guesses == labels).sum())
    accelerator.print(f"before: {right} of {len(rows)}")

    student.train()
    for batch in loader:
        outputs = student(**batch)
        with torch.no_grad():
            wanted = F.softmax(teacher(**batch).logits, dim=-1)
        loss = outputs.loss + F.kl_div(F.log_softmax(outputs.logits, dim=-1), wanted, reduction="batchmean")
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        accelerator.print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
