"""TRL's SFTTrainer on a model made from a config, with LoRA."""

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer


def main() -> None:
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    data = Dataset.from_dict({"input_ids": [[i % 256 for i in range(k, k + 64)] for k in range(64)]})
    arguments = SFTConfig(
        output_dir="sft-output",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_length=64,
        max_steps=3,
        logging_steps=1,
        report_to="none",
        packing=False,
        bf16=torch.cuda.is_available(),
        gradient_checkpointing=True,
    )
    peft = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    SFTTrainer(model=model, args=arguments, train_dataset=data, peft_config=peft, processing_class=_tokenizer()).train()


def _tokenizer():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = {f"t{i}": i for i in range(254)} | {"<eos>": 254, "<pad>": 255}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<eos>"))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>")


if __name__ == "__main__":
    main()
