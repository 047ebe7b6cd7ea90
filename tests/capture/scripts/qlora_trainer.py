"""QLoRA with the Trainer: a base in NF4, prepared for k-bit training, adapters on top."""

import argparse

import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--length", type=int, default=32)
    args = parser.parse_args()
    half = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    model = AutoModelForCausalLM.from_pretrained(
        args.model,
        dtype=half,
        quantization_config=BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=half, bnb_4bit_use_double_quant=True
        ),
    )
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    rows = [{"input_ids": [1] * args.length, "labels": [1] * args.length} for _ in range(32)]
    training = TrainingArguments(
        output_dir="qlora-output", per_device_train_batch_size=2, max_steps=2, report_to="none", optim="adamw_torch",
        bf16=torch.cuda.is_available(),
    )  # fmt: skip
    Trainer(model=model, args=training, train_dataset=rows).train()


if __name__ == "__main__":
    main()
