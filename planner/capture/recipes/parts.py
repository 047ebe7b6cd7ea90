"""What the scripts of recipes share: arguments, a tokenizer of one word, data of given lengths, adapters."""

import argparse
from typing import Any

_WORD, _END, _PAD = "a", "<eos>", "<pad>"
_STEPS = 2


class Job:
    """One recipe's arguments, and what they mean for TRL."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given

    @property
    def prompt(self) -> str:
        """A prompt of as many tokens as are asked for."""
        return _words(self.given.prompt_len)

    @property
    def completion(self) -> str:
        """A completion of as many tokens, with the end that trainers add."""
        return _words(self.given.completion_len - 1)

    @property
    def rows(self) -> int:
        """Samples: enough for every step."""
        return int(self.given.batch) * int(self.given.accumulation) * _STEPS

    def data(self, **columns: object) -> Any:
        """A data set of equal rows."""
        from datasets import Dataset

        return Dataset.from_dict({name: [value] * self.rows for name, value in columns.items()})

    def arguments(self, **more: Any) -> dict[str, Any]:
        """What every config of TRL is given; the rest is its default."""
        given = self.given
        found: dict[str, Any] = {
            "output_dir": given.output,
            "per_device_train_batch_size": given.batch,
            "gradient_accumulation_steps": given.accumulation,
            "max_steps": _STEPS,
            "save_strategy": "no",
            "report_to": "none",
            "max_length": given.prompt_len + given.completion_len,
            **more,
        }
        if given.cpu:
            found["use_cpu"] = True
        pure = given.weights != "float32"
        found["bf16"] = given.compute == "bfloat16" and not pure
        found["fp16"] = given.compute == "float16" and not pure
        # Nobody steps a frozen base: under adapters it is loaded in the type of the computation.
        stored = given.compute if given.lora_rank else given.weights
        how: dict[str, Any] = {"dtype": stored} if stored != "float32" else {}
        if given.attention:
            how["attn_implementation"] = given.attention
        if given.four_bits:
            how["quantization_config"] = _packed(given.compute, twice=given.double_quant)
        if given.dequantize:
            how["quantization_config"] = _unpacked()
        if how:
            found["model_init_kwargs"] = how
        if given.liger:
            found["use_liger_kernel"] = True
        if given.reentrant:
            found["gradient_checkpointing_kwargs"] = {"use_reentrant": True}
        if given.no_checkpointing:
            found["gradient_checkpointing"] = False
        return found

    def adapters(self, task: str = "CAUSAL_LM") -> Any:
        """LoRA as it is asked for; None without."""
        if not self.given.lora_rank:
            return None
        from peft import LoraConfig

        targets: Any = self.given.lora_targets or "all-linear"
        if targets != "all-linear":
            targets = targets.split(",")
        share = self.given.lora_dropout
        return LoraConfig(r=self.given.lora_rank, target_modules=targets, task_type=task, lora_dropout=share)

    def tokenizer(self) -> Any:
        """One word, an end and a padding, whose ids every vocabulary has."""
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        kind = Tokenizer(models.WordLevel({_WORD: 0, _END: 1, _PAD: 2}, unk_token=_WORD))
        kind.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        made = PreTrainedTokenizerFast(tokenizer_object=kind, eos_token=_END, pad_token=_PAD, bos_token=_END)
        made.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
        return made


def job(*more: tuple[str, dict[str, Any]]) -> Job:
    """The script's arguments; `more`: those of one recipe alone."""
    return Job(parsed(*more))


def parsed(*more: tuple[str, dict[str, Any]]) -> argparse.Namespace:
    """The script's arguments as they are."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--output", default="recipe-output")
    for name, least in (("--prompt-len", 512), ("--completion-len", 512), ("--batch", 1), ("--accumulation", 1)):
        parser.add_argument(name, type=int, default=least)
    parser.add_argument("--lora-rank", type=int, default=0)
    parser.add_argument("--lora-targets", default="")
    parser.add_argument("--lora-dropout", type=float, default=0.0)
    parser.add_argument("--double-quant", action="store_true", help="constants of a base in NF4 packed again")
    parser.add_argument("--compute", default="bfloat16", help="torch dtype of autocast; float32: none")
    parser.add_argument("--weights", default="float32", help="torch dtype in which the models are loaded")
    parser.add_argument("--no-checkpointing", action="store_true")
    parser.add_argument("--reentrant", action="store_true", help="checkpoints by torch's older way")
    parser.add_argument("--attention", default="", help="as transformers names it; empty: its own choice")
    parser.add_argument("--dequantize", action="store_true", help="MXFP4 weights as 16-bit ones")
    parser.add_argument("--cpu", action="store_true", help="on the host")
    parser.add_argument("--liger", action="store_true", help="Liger's kernels for the trained model's layers")
    parser.add_argument("--four-bits", action="store_true", help="the frozen base in NF4")
    for name, options in more:
        parser.add_argument(name, **options)
    return parser.parse_args()


def _packed(compute: str, *, twice: bool) -> Any:
    """NF4, its constants in fp32 or packed again: what `--peft qlora` means elsewhere."""
    import torch
    from transformers import BitsAndBytesConfig

    dtype = getattr(torch, compute)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=dtype,
        bnb_4bit_use_double_quant=twice,
    )


def _unpacked() -> Any:
    """transformers trains no MXFP4 weights: they are loaded as 16-bit ones."""
    from transformers import Mxfp4Config

    return Mxfp4Config(dequantize=True)


def _words(count: int) -> str:
    return " ".join([_WORD] * count)
