"""Finetuning runs of litgpt, by rule from their rows."""

from dataclasses import dataclass, replace
from typing import Any

from benchmarks.accuracy.litgpt.model import Lit, Peft
from benchmarks.accuracy.memory.rules import checkpoints
from benchmarks.accuracy.row import Row, SetAside, field, is_true, needed, number, text
from gpu_plan.planner.hardware.cluster import Cluster

_LLAMA = Lit(dim=4096, layers=32, heads=32, groups=32, head_size=128, hidden=11008, vocab=32000)
_GEMMA = replace(_LLAMA, head_size=256, vocab=256000, mlp="gemma", scaled_embedding=True, unit_offset=True)
_GEMMA_2 = replace(_GEMMA, softcap=50.0, post_norms=True)
_LLAMA_3 = replace(_LLAMA, groups=8, hidden=14336, vocab=128256)
_MODELS = {
    "stablelm-base-alpha-3b": replace(
        _LLAMA, layers=16, hidden=16384, vocab=50688, rotary=0.25, parallel=True, bias=True, norm="layer", mlp="neox"
    ),
    "Llama-2-7b-hf": _LLAMA,
    "falcon-7b": replace(
        _LLAMA,
        dim=4544,
        heads=71,
        groups=1,
        head_size=64,
        hidden=18176,
        vocab=65024,
        parallel=True,
        shared_norm=True,
        norm="layer",
        mlp="neox",
    ),
    "gemma-2b": replace(_GEMMA, dim=2048, layers=18, heads=8, groups=1, hidden=16384),
    "gemma-7b": replace(_GEMMA, dim=3072, layers=28, heads=16, groups=16, hidden=24576),
    "gemma-2-2b": replace(_GEMMA_2, dim=2304, layers=26, heads=8, groups=4, hidden=9216),
    "gemma-2-9b": replace(_GEMMA_2, dim=3584, layers=42, heads=16, groups=8, hidden=14336),
    "Meta-Llama-3-8B": _LLAMA_3,
    "Meta-Llama-3.1-8B": _LLAMA_3,
    "Llama-3.2-1B": replace(_LLAMA_3, dim=2048, layers=16, head_size=64, hidden=8192),
    "Mistral-7B-v0.1": replace(_LLAMA_3, vocab=32000),
    "Mistral-7B-v0.2": replace(_LLAMA_3, vocab=32000),
    "TinyLlama-1.1B-intermediate-step-1431k-3T": replace(
        _LLAMA, dim=2048, layers=22, groups=4, head_size=64, hidden=5632
    ),
}
"""litgpt config.py, by the last part of the row's name."""
_LATE = frozenset({"gemma-2-2b", "gemma-2-9b", "Meta-Llama-3.1-8B", "Llama-3.2-1B"})
"""Added to the table of configurations after May 2024."""
_TARGETS = frozenset({"query", "key", "value", "projection", "mlp", "head"})
_MOST_TOKENS, _MOST_RANK, _MOST_ACCUMULATED = 2**17, 4096, 2**12
_PEFT: dict[str, Peft] = {"lora": "lora", "qlora": "lora", "adapter": "adapter", "adapter_v2": "adapter_v2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LitCase:
    """One row as it ran."""

    lit: Lit
    seq_len: int
    cluster: str
    """As `--gpus` takes it."""
    longest_first: bool
    """Whether the script put the longest sample into its first batch, and no other batch comes near it."""
    accumulation: int = 1
    strategy: str = "single"

    @property
    def kernels(self) -> str:
        """What tells one run from another."""
        kind = {"lora": f"LoRA of rank {self.lit.rank}", "adapter": "adapter", "adapter_v2": "adapter v2"}
        words = [kind[self.lit.peft], *([self.lit.quantised] if self.lit.quantised else []), "chunked loss"]
        return ", ".join([*words, "longest batch first" if self.longest_first else "every batch at the cap"])


def lit_case_of(row: Row, cluster: Cluster) -> LitCase:
    """SetAside where litgpt's model or its way to finetune is not mirrored."""
    _check(row, cluster)
    name = text(row, "model").rpartition("/")[2]
    tables = "resource-tables" in text(row, "source")
    lit = replace(_MODELS[name], since="2023-10" if tables else "2024-05" if name in _LATE else "2024-04")
    quantised: Any = text(row, "quantization").removeprefix("bnb.")
    lit = replace(lit, peft=_PEFT[text(row, "task")], quantised=quantised)
    if lit.peft == "lora":
        lit = _with_lora(lit, row)
    seq_len = needed(row, "seq_len", "sequence length", _MOST_TOKENS)
    stated = field(row, "grad_accum") is not None
    accumulation = needed(row, "grad_accum", "accumulation", _MOST_ACCUMULATED) if stated else 1
    return LitCase(lit=lit, seq_len=seq_len, cluster=cluster.spec, longest_first=tables, accumulation=accumulation)


def _with_lora(lit: Lit, row: Row) -> Lit:
    targets = field(row, "lora.targets")
    if not isinstance(targets, list) or not set(map(str, targets)) <= _TARGETS or not targets:
        raise SetAside("adapted modules not stated in litgpt's words")
    dropout = field(row, "lora.dropout")
    return replace(
        lit,
        rank=needed(row, "lora.rank", "rank of the adapters", _MOST_RANK),
        targets=frozenset(map(str, targets)),
        dropout=(number(row, "lora.dropout") or 0.0) if dropout is not None else lit.dropout,
    )


def _check(row: Row, cluster: Cluster) -> None:
    if text(row, "task") not in _PEFT or cluster.world_size > 1:
        raise SetAside("FSDP1 as Lightning Fabric sets it up, or training without adapters")
    if text(row, "model").rpartition("/")[2] not in _MODELS:
        raise SetAside("a model of litgpt's that is not mirrored")
    if text(row, "quantization") not in ("", "bnb.nf4", "bnb.nf4-dq"):
        raise SetAside(f"litgpt's {text(row, 'quantization')} is not mirrored")
    if not text(row, "dtype.compute").startswith("bf16"):
        raise SetAside("precision other than bf16-true")
    if is_true(row, "compile"):
        raise SetAside("compiled by a torch of its time")
    if checkpoints(row):
        raise SetAside("checkpointing is not mirrored in litgpt")
