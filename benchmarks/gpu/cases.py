"""Which configurations are measured on a GPU, the most telling first. Standard library only.

Sequence lengths and micro batches are chosen so that activations, not parameters and optimizer state, make the peak.
Sizes are for a GPU of about 140 GB; on a smaller one the large cases run out of memory, which is recorded as well.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Case:
    """One configuration; the words are those of `plan`'s options unless a field says otherwise."""

    model: str
    """Hub id of a config in planner/model/catalog."""
    seq_len: int
    micro_batch: int
    precision: str = "bf16-mixed"
    optimizer: str = "adamw"
    attention: str = "sdpa"
    """`sdpa` and `eager` as in transformers; `flash`, `efficient`, `cudnn`, `math` force that backend of torch's
    scaled_dot_product_attention (which `plan` does not offer)."""
    checkpointing: str = "none"
    stack: str = "accelerate"
    peft: str = "none"
    lora_rank: int = 16
    lora_targets: str = "all-linear"
    double_quant: bool = False
    clipping: bool = True
    grad_accum: int = 1
    snapshot: bool = False
    """Whether the allocator's history of the second iteration is written as a memory snapshot."""
    overrides: tuple[tuple[str, int], ...] = ()
    """Values put into the config: small models for a check of the script itself."""
    dry: str = ""
    """Of a dry run: the id of the case that this small one stands for."""

    @property
    def id(self) -> str:
        """Name of the case: the model, its sizes, and whatever is not the default."""
        if self.dry:
            return f"{self.dry} (dry)"
        told = [f"{self.model.rpartition('/')[2]} s{self.seq_len} b{self.micro_batch}"]
        plain = {f.name: f.default for f in fields(self)}
        for name in ("precision", "optimizer", "attention", "checkpointing", "stack", "peft"):
            if getattr(self, name) != plain[name]:
                told.append(f"{name}={getattr(self, name)}")
        if self.double_quant:
            told.append("double-quant")
        if not self.clipping:
            told.append("no-clipping")
        if self.grad_accum > 1:
            told.append(f"accum={self.grad_accum}")
        return " ".join(told)

    def as_row(self) -> dict[str, Any]:
        """The case as it stands in a results file."""
        return asdict(self) | {"id": self.id, "overrides": dict(self.overrides)}


def case_from(row: dict[str, Any]) -> Case:
    """Reads back `as_row`. ValueError when a field is missing or unknown."""
    known = {f.name for f in fields(Case)}
    values = {key: value for key, value in row.items() if key in known}
    missing = {"model", "seq_len", "micro_batch"} - set(values)
    if missing or set(row) - known - {"id"}:
        raise ValueError(f"a case of another version: fields {sorted(missing or set(row) - known - {'id'})}")
    values["overrides"] = tuple(sorted(dict(values.get("overrides") or {}).items()))
    return Case(**values)


def _variations(base: Case, *changes: dict[str, Any], snapshots: int = 0) -> list[Case]:
    """The base and its changed copies; the first `snapshots` of them write a memory snapshot."""
    cases = [base, *(replace(base, **change) for change in changes)]
    return [replace(case, snapshot=index < snapshots) for index, case in enumerate(cases)]


def _llama_1b() -> list[Case]:
    base = Case(model="meta-llama/Llama-3.2-1B", seq_len=2048, micro_batch=8)
    return _variations(
        base,
        {"checkpointing": "full"},
        {"precision": "bf16"},
        {"optimizer": "adamw-fused"},
        {"stack": "trainer"},
        {"stack": "plain"},
        {"peft": "lora"},
        {"peft": "qlora"},
        {"precision": "fp16-mixed"},
        {"precision": "fp32", "micro_batch": 4},
        {"attention": "eager", "micro_batch": 2},
        {"grad_accum": 2},
    )


def _llama_1b_more() -> list[Case]:
    base = Case(model="meta-llama/Llama-3.2-1B", seq_len=8192, micro_batch=2)
    short = {"seq_len": 2048, "micro_batch": 4}
    changes: list[dict[str, Any]] = [
        {"optimizer": "adamw-forloop", **short},
        {"optimizer": "sgd", **short},
        {"optimizer": "sgd-momentum", **short},
        {"optimizer": "adamw-8bit", **short},
        {"clipping": False, **short},
        {"attention": "flash", **short},
        {"attention": "cudnn", **short},
        {"attention": "efficient", **short},
        {"attention": "math", "seq_len": 2048, "micro_batch": 1},
        {"peft": "qlora", "double_quant": True, "checkpointing": "full", **short},
        {"seq_len": 100, "micro_batch": 3},
    ]
    return _variations(base, *changes)


def _small() -> list[Case]:
    base = Case(model="HuggingFaceTB/SmolLM2-135M", seq_len=1024, micro_batch=8)
    return _variations(
        base,
        {"checkpointing": "full", "precision": "bf16"},
        {"peft": "lora"},
        {"seq_len": 8192, "micro_batch": 2},
        {"precision": "fp16-mixed", "stack": "plain"},
        snapshots=3,
    )


def _multi_head() -> list[Case]:
    """Every attention backend, on a model without grouped queries."""
    base = Case(model="EleutherAI/pythia-1.4b", seq_len=2048, micro_batch=8)
    return _variations(
        base,
        {"attention": "flash"},
        {"attention": "cudnn"},
        {"attention": "efficient"},
        {"attention": "math", "micro_batch": 2},
        {"precision": "fp32", "micro_batch": 4},
    )


def _llama_8b() -> list[Case]:
    base = Case(model="meta-llama/Llama-3.1-8B", seq_len=4096, micro_batch=1, precision="bf16")
    return [
        base,
        replace(base, micro_batch=8, checkpointing="full"),
        replace(base, micro_batch=2, precision="bf16-mixed", peft="lora"),
        replace(base, micro_batch=8, precision="bf16-mixed", peft="lora", checkpointing="full"),
        replace(base, micro_batch=2, precision="bf16-mixed", peft="qlora"),
        replace(base, optimizer="adamw-8bit", checkpointing="full"),
        replace(base, precision="bf16-mixed"),  # more than 140 GB of states: must run out of memory
    ]


def _middle() -> list[Case]:
    base = Case(model="Qwen/Qwen3-4B", seq_len=2048, micro_batch=4, checkpointing="full")
    return [
        replace(base, seq_len=4096),
        replace(base, precision="bf16", checkpointing="none"),
        replace(base, peft="qlora", checkpointing="none"),
        Case(model="mistralai/Mistral-7B-v0.1", seq_len=4096, micro_batch=2, peft="lora"),
    ]


def _large() -> list[Case]:
    base = Case(model="Qwen/Qwen3-14B", seq_len=4096, micro_batch=2, checkpointing="full", peft="lora")
    return [
        base,
        replace(base, peft="qlora"),
        replace(base, precision="bf16", peft="none", optimizer="sgd", micro_batch=1),
        replace(base, precision="bf16", peft="none", optimizer="adamw-8bit", micro_batch=1),
    ]


def _families() -> list[Case]:
    """Other architectures: dropout, learned positions, encoders, wide vocabularies, experts."""
    gpt2 = Case(model="openai-community/gpt2", seq_len=1024, micro_batch=16)
    experts = Case(model="allenai/OLMoE-1B-7B-0924-SFT", seq_len=2048, micro_batch=2)
    return [
        gpt2,
        replace(gpt2, attention="eager"),
        Case(model="google-bert/bert-large-uncased", seq_len=512, micro_batch=32),
        Case(model="Qwen/Qwen3-0.6B", seq_len=4096, micro_batch=4),
        Case(model="google/gemma-3-1b-it", seq_len=2048, micro_batch=4),
        Case(model="google/gemma-2-2b", seq_len=2048, micro_batch=2),
        Case(model="bigscience/bloom-560m", seq_len=2048, micro_batch=4),
        Case(model="google/flan-t5-large", seq_len=512, micro_batch=16),
        Case(model="facebook/opt-1.3b", seq_len=2048, micro_batch=4),
        replace(experts, precision="bf16", optimizer="adamw-fused"),
    ]


def _tiny() -> list[Case]:
    """Four cases that any machine runs in seconds: a check of this script, not a measurement."""
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 512,
    }
    base = Case(model="Qwen/Qwen3-0.6B", seq_len=32, micro_batch=2, overrides=tuple(sorted(sizes.items())))
    return [
        replace(base, precision="fp32", optimizer="adamw-fused", stack="plain"),
        replace(base, checkpointing="full", grad_accum=2),
        replace(base, precision="bf16", optimizer="sgd", attention="math", stack="trainer", clipping=False),
        replace(base, peft="lora", attention="eager", snapshot=True),
    ]


_SMALL = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "word_embed_proj_dim"), 64),
    **dict.fromkeys(("intermediate_size", "n_inner", "d_ff", "ffn_dim"), 128),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads"), 4),
    **dict.fromkeys(("head_dim", "d_kv"), 16),
    "num_key_value_heads": 2,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "vocab_size": 512,
}
"""Sizes of a dry run, under every name that a config may have for them."""
_NOT_ON_CPU = ("cudnn", "efficient")


def dry(case: Case, config: Mapping[str, Any]) -> Case:
    """The same configuration so small that a CPU runs it in a second; `config` is the model's own.

    A backend of attention that a CPU lacks becomes torch's written-out one.
    """
    sizes = {name: size for name, size in _SMALL.items() if isinstance(config.get(name), int)}
    attention = "math" if case.attention in _NOT_ON_CPU else case.attention
    return replace(
        case,
        seq_len=min(case.seq_len, 32),
        micro_batch=min(case.micro_batch, 2),
        attention=attention,
        lora_rank=4,
        overrides=tuple(sorted(sizes.items())),
        dry=case.id,
    )


GROUPS = {
    "llama-1b": _llama_1b,
    "small": _small,
    "llama-8b": _llama_8b,
    "multi-head": _multi_head,
    "families": _families,
    "large": _large,
    "middle": _middle,
    "llama-1b-more": _llama_1b_more,
}
"""One worker process each, in this order: what a shorter run leaves out comes last."""
TINY = {"tiny": _tiny}


def groups(tiny: bool) -> dict[str, list[Case]]:
    """Cases by group, in the order in which they run."""
    return {name: make() for name, make in (TINY if tiny else GROUPS).items()}


def dry_groups(config_of: Callable[[Case], Mapping[str, Any]]) -> dict[str, list[Case]]:
    """Every case of the measurement, small; all in one worker, since a CPU has no context to measure."""
    return {"dry": [dry(case, config_of(case)) for made in GROUPS.values() for case in made()]}
