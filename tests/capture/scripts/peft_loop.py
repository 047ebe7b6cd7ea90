"""peft and Accelerate by hand, on a model read with from_pretrained in bf16."""

import argparse

import torch
from accelerate import Accelerator
from peft import LoraConfig, TaskType, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, default_data_collator, get_cosine_schedule_with_warmup


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name_or_path", required=True)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=2)
    parser.add_argument("--max_length", type=int, default=48)
    args = parser.parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, dtype=torch.float32)
    peft_config = LoraConfig(task_type=TaskType.CAUSAL_LM, r=args.rank, lora_alpha=8, lora_dropout=0.1)
    model = get_peft_model(model, peft_config)
    model.print_trainable_parameters()
    rows = [{"input_ids": [1] * args.max_length, "labels": [1] * args.max_length} for _ in range(32)]
    loader = DataLoader(rows, batch_size=args.batch_size, collate_fn=default_data_collator, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    schedule = get_cosine_schedule_with_warmup(optimizer, 2, 20)
    model, loader, optimizer, schedule = accelerator.prepare(model, loader, optimizer, schedule)
    total = 0.0
    model.train()
    for batch in loader:
        with accelerator.accumulate(model):
            outputs = model(**batch)
            loss = outputs.loss
            total += loss.detach().float()
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        accelerator.print(f"mean loss {total / 32}")


if __name__ == "__main__":
    main()
