"""The scripts that are run for real, and the tiny models under the hub ids that they load."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_ACCELERATE = "huggingface/accelerate:examples/"
_FEATURE = _ACCELERATE + "by_feature/"
_TRL = "huggingface/trl:"
_MODEL = ("--model_name_or_path", "Qwen/Qwen2.5-0.5B")
_TRAINED = (*_MODEL, "--output_dir", "out", "--per_device_train_batch_size", "2", "--max_steps", "1", "--use_cpu")
_TABLES = {name: "text-label" for name in ("train.csv", "validation.csv", "test.csv")}
_SPAM = {name: "Text-Label" for name in ("train.csv", "validation.csv", "test.csv")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One script as it is called."""

    script: str
    """Repository and path; `installed:` stands for site-packages."""
    arguments: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """Local files by kind: see gpu_plan's benchmarks.corpus.files."""
    joins: bool = True
    """Whether its ranks join; else two independent processes run, as they would under torchrun."""


def _case(script: str, *arguments: str, files: Mapping[str, str] | None = None, joins: bool = True) -> Case:
    return Case(script=script, arguments=arguments, files=files or {}, joins=joins)


CASES = (
    _case(_FEATURE + "checkpointing.py"),
    _case(_FEATURE + "gradient_accumulation.py", "--gradient_accumulation_steps", "2"),
    _case(_ACCELERATE + "complete_nlp_example.py"),
    _case(_FEATURE + "memory.py"),
    _case(
        _FEATURE + "gradient_accumulation_for_autoregressive_models.py",
        "--gradient_accumulation_steps", "2", "--per_device_batch_size", "2",
    ),
    _case(
        "huggingface/peft:examples/sequence_classification/peft_no_lora_accelerate.py",
        "--model_name_or_path", "bert-base-cased", "--output_dir", "out",
    ),
    _case(_TRL + "examples/scripts/cpo.py", *_TRAINED, "--dataset_name", "trl-lib/ultrafeedback_binarized"),
    _case("rasbt/LLMs-from-scratch:ch06/03_bonus_imdb-classification/train_bert_hf.py", files=_TABLES),
    _case("rasbt/LLMs-from-scratch:ch06/03_bonus_imdb-classification/train_bert_hf_spam.py", files=_SPAM),
    _case(
        "lucidrains/x-transformers:train_entropy_tokenizer.py", "--seq_len=64", "--batch_size=2", "--cpu=True",
        files={"data/enwik8.gz": "enwik8"},
    ),
    _case("karpathy/makemore:makemore.py", "--device", "cpu", joins=False),
    _case("karpathy/ng-video-lecture:bigram.py", joins=False),
    _case("graykode/nlp-tutorial:1-1.NNLM/NNLM.py", joins=False),
    _case("graykode/nlp-tutorial:2-1.TextCNN/TextCNN.py", joins=False),
    _case("graykode/nlp-tutorial:3-2.TextLSTM/TextLSTM.py", joins=False),
    _case("jcjohnson/pytorch-examples:nn/two_layer_net_module.py", joins=False),
    _case("yunjey/pytorch-tutorial:tutorials/01-basics/linear_regression/main.py", joins=False),
    _case(
        "yunjey/pytorch-tutorial:tutorials/02-intermediate/language_model/main.py",
        files={"data/train.txt": "text"},
        joins=False,
    ),
    _case("Lightning-AI/pytorch-lightning:examples/pytorch/bug_report/bug_report_model.py", joins=False),
    _case("installed:trl/scripts/sft.py", *_TRAINED, "--dataset_name", "trl-lib/Capybara"),
    _case("installed:trl/scripts/sft.py", *_TRAINED, "--dataset_name", "trl-lib/Capybara", "--packing"),
    _case("installed:trl/scripts/dpo.py", *_TRAINED, "--dataset_name", "trl-lib/ultrafeedback_binarized"),
    _case("installed:trl/scripts/reward.py", *_TRAINED, "--dataset_name", "trl-lib/ultrafeedback_binarized"),
    _case("installed:trl/scripts/kto.py", *_TRAINED, "--dataset_name", "trl-lib/kto-mix-14k"),
)  # fmt: skip

TINY: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "bert-base-cased": ("BertModel", {
        "model_type": "bert", "architectures": ["BertModel"], "vocab_size": 512, "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128, "max_position_embeddings": 512,
        "pad_token_id": 0,
    }),
    "distilbert-base-uncased": ("DistilBertModel", {
        "model_type": "distilbert", "architectures": ["DistilBertModel"], "vocab_size": 512, "dim": 64, "n_layers": 2,
        "n_heads": 2, "hidden_dim": 128, "max_position_embeddings": 512, "pad_token_id": 0,
    }),
    "Qwen/Qwen2.5-0.5B": ("Qwen2ForCausalLM", {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 512, "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
        "max_position_embeddings": 2048, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True,
    }),
    "t5-base": ("T5ForConditionalGeneration", {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 512, "d_model": 64,
        "d_kv": 32, "d_ff": 128, "num_layers": 2, "num_heads": 2, "pad_token_id": 0, "eos_token_id": 2,
        "decoder_start_token_id": 0,
    }),
    "HuggingFaceTB/SmolLM-360M": ("LlamaForCausalLM", {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
        "max_position_embeddings": 2048, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True,
    }),
}  # fmt: skip
"""Class and config by hub id."""


def lay_tiny(cache: Any) -> None:
    """Random weights of every tiny model, laid out in a hub's cache where they miss."""
    import transformers

    for name, (kind, config) in TINY.items():
        home = cache / f"models--{name.replace('/', '--')}"
        snapshot = home / "snapshots" / ("0" * 40)
        if (snapshot / "model.safetensors").exists():
            continue
        (home / "refs").mkdir(parents=True, exist_ok=True)
        (home / "refs" / "main").write_text("0" * 40)
        made = transformers.AutoConfig.for_model(**dict(config))
        getattr(transformers, kind)(made).save_pretrained(snapshot)
