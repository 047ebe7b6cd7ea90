"""Fine-tunes a sequence-to-sequence model, dividing the loss itself, and writes translations."""

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq, get_linear_schedule_with_warmup

ACCUMULATION = 4
EPOCHS = 3


def build(name):
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModelForSeq2SeqLM.from_pretrained(name)
    no_decay = ["bias", "layer_norm.weight"]
    groups = [
        {
            "params": [p for n, p in model.named_parameters() if not any(word in n for word in no_decay)],
            "weight_decay": 0.01,
        },
        {
            "params": [p for n, p in model.named_parameters() if any(word in n for word in no_decay)],
            "weight_decay": 0.0,
        },
    ]
    return tokenizer, model, torch.optim.AdamW(groups, lr=5e-5)


def main():
    accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
    set_seed(11)
    tokenizer, model, optimizer = build("google-t5/t5-small")
    raw = load_dataset("opus_books", "en-fr")["train"].train_test_split(test_size=0.1, seed=11)

    def tokenize(rows):
        return tokenizer(
            [pair["en"] for pair in rows["translation"]], text_target=[pair["fr"] for pair in rows["translation"]]
        )

    with accelerator.main_process_first():
        data = raw.map(tokenize, batched=True, remove_columns=raw["train"].column_names)
    collator = DataCollatorForSeq2Seq(tokenizer, model=model)
    train_loader = DataLoader(data["train"], shuffle=True, batch_size=8, collate_fn=collator)
    test_loader = DataLoader(data["test"], batch_size=8, collate_fn=collator)
    total = len(train_loader) * EPOCHS // ACCUMULATION
    scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=100, num_training_steps=total)
    model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, test_loader, scheduler
    )
    for epoch in range(EPOCHS):
        model.train()
        total_loss = 0
        for step, batch in enumerate(train_loader):
            loss = model(**batch).loss
            total_loss += loss.detach().float()
            loss = loss / ACCUMULATION
            accelerator.backward(loss)
            if step % ACCUMULATION == 0 or step == len(train_loader) - 1:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        mean = accelerator.reduce(total_loss, reduction="mean") / len(train_loader)
        accelerator.print(f"epoch {epoch}: {mean.item():.4f}")
        model.eval()
        lines = []
        for batch in test_loader:
            with torch.no_grad():
                tokens = accelerator.unwrap_model(model).generate(batch["input_ids"], max_new_tokens=64)
            tokens = accelerator.pad_across_processes(tokens, dim=1, pad_index=tokenizer.pad_token_id)
            tokens = accelerator.gather_for_metrics(tokens)
            lines += tokenizer.batch_decode(tokens, skip_special_tokens=True)
        if accelerator.is_main_process:
            with open(f"epoch-{epoch}.txt", "w") as file:
                file.write("\n".join(lines))


if __name__ == "__main__":
    main()
