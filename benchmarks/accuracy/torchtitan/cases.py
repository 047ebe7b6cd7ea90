"""Runs of torchtitan's Llama under FSDP2, by rule from their rows."""

from dataclasses import dataclass

from benchmarks.accuracy.memory.rules import strategy_of
from benchmarks.accuracy.models import size_in, sizes_of
from benchmarks.accuracy.row import Row, SetAside, is_true, needed, text, whole
from benchmarks.accuracy.torchtitan.model import Float8, Loss, Norm, Recompute, Titan
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.workload.training import Attention

_RECOMPUTE: dict[str, Recompute] = {
    "none": "none",
    "full": "full",
    "selective (every 2nd layer)": "every-2nd",
    "selective (per-op)": "op",
    "selective (per-op) assumed default": "op",
}
"""What the rows call it; `every 2nd` and `per-op` are torchtitan's two kinds of `selective`."""
_MOST_TOKENS = 2**17
_PAGES = "pytorch/torchtitan:benchmarks/"
"""Its own tables over 8 to 512 GPUs, which the script of one node cannot launch; what commits tell was run by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TitanCase:
    """One row as it ran."""

    titan: Titan
    cluster: str
    """As `--gpus` takes it."""
    ranks: int
    attention: Attention
    """torchtitan asked torch for SDPA, which chose flash attention on Hopper until torchtitan named cuDNN's first
    (models/attention.py, 2025)."""
    reshard: str
    """`default` (all blocks but the last), `always`, `never`: parallelize_llama.py: apply_fsdp."""
    wrapped: str = "blocks"
    """What FSDP2 shards on its own: `blocks`, the rest with the root; or `ends` as well, the embedding by itself, the
    final norm and the head together (models/llama3/infra/parallelize.py: apply_fsdp, since 2025)."""
    expandable: bool = True
    """Whether the allocator's segments grow: `run_llama_train.sh` asks for it (a5e57e4a), `multinode_trainer.slurm`
    does not."""
    strategy: str = "fsdp"

    @property
    def seq_len(self) -> int:
        return self.titan.seq_len

    @property
    def kernels(self) -> str:
        """What tells one run from another."""
        words = [f"float8 {self.titan.float8}"] if self.titan.float8 else []
        words += [f"recompute {self.titan.recompute}", f"{self.titan.norm} norm", f"{self.titan.loss} loss"]
        words += [f"TP {self.titan.tensor}"] if self.titan.tensor > 1 else []
        words += ["blocks compiled"] if self.titan.compiled != "nothing" else []
        words += [] if self.expandable else ["ordinary segments"]
        return ", ".join([*words, *([f"reshard {self.reshard}"] if self.reshard != "default" else [])])

    def states(self, parameters: int) -> int:
        """Weights and two moments in fp32: gradients are there when activations no longer are."""
        return 12 * parameters // self.ranks


def titan_case_of(row: Row, source: ModelSource | None, cluster: Cluster) -> TitanCase:
    """`source`: the row's model where it is at hand; else its own sizes must do. SetAside where neither can."""
    _check(row)
    notes = text(row, "notes")
    late = text(row, "strategy").startswith("FSDP2 eager")
    norm: Norm = "fused" if late or "after nn.RMSNorm" in notes else "written-out"
    loss: Loss = "chunked" if "chunked" in text(row, "fused_or_chunked_loss") else "whole"
    dim, layers, heads, kv_heads, hidden, vocab = _sizes(row, source)
    return TitanCase(
        titan=Titan(
            dim=dim,
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            hidden=hidden,
            vocab=vocab,
            seq_len=needed(row, "seq_len", "sequence length", _MOST_TOKENS),
            recompute=_RECOMPUTE[text(row, "activation_checkpointing")],
            norm=norm,
            loss=loss,
            float8=_float8(text(row, "dtype.compute")),
            compiled="blocks" if is_true(row, "compile") else "nothing",
            tensor=whole(row, "parallel.tp") or 1,
        ),
        cluster=cluster.spec,
        ranks=cluster.world_size,
        attention=Attention.SDPA if late else Attention.FLASH,
        wrapped="ends" if late else "blocks",
        expandable=not text(row, "source").startswith(_PAGES),
        reshard=next((word for word in ("always", "never") if f"reshard_after_forward {word}" in notes), "default"),
    )


def _sizes(row: Row, source: ModelSource | None) -> tuple[int, int, int, int, int, int]:
    """Width, layers, heads, heads of keys, hidden width, vocabulary."""
    config = {} if source is None else source.config or {}
    if source is not None and (config.get("model_type") != "llama" or config.get("tie_word_embeddings")):
        raise SetAside(f"torchtitan's {source.id} is not mirrored: its Llama alone is")
    own = sizes_of(row)
    if source is None and "llama" not in text(row, "model").lower() and "llama" not in text(row, "arch.model_type"):
        raise SetAside("model not at hand, and not said to be a Llama")
    names = ("hidden", "layers", "heads", "kv_heads", "intermediate", "vocab")
    found = [own.get(name) or size_in(config, name) for name in names]
    if None in found:
        raise SetAside("model not at hand")
    dim, layers, heads, kv_heads, hidden, vocab = (size or 0 for size in found)
    if dim % heads or heads % kv_heads:
        raise SetAside("its sizes make no model")
    return dim, layers, heads, kv_heads, hidden, vocab


def _float8(compute: str) -> Float8:
    if "float8" not in compute:
        return ""
    return "nocompile" if "nocompile" in compute else "tensorwise"


def _check(row: Row) -> None:
    gpu, notes, compiled = text(row, "gpu.model"), text(row, "notes"), is_true(row, "compile")
    if compiled and not gpu.startswith("H100"):
        raise SetAside("compiled for a GPU other than H100, by a torchtitan of unknown day")
    if compiled and "June 2025" in notes:
        raise SetAside("torchtitan of June 2025 is not mirrored")
    quantised = text(row, "quantization")
    unlike = next((word for word in ("rowwise", "all-gather", "mx") if word in quantised), None)
    if unlike is not None:
        raise SetAside(f"float8 {unlike} is not mirrored")
    if strategy_of(row) != "fsdp":
        raise SetAside(f"{text(row, 'strategy').split(',')[0]} is not modelled in torchtitan")
    if "A100" in gpu:
        raise SetAside("FSDP2 as torch had it in June 2024")
    if text(row, "activation_checkpointing") not in _RECOMPUTE:
        raise SetAside(f"checkpointing {text(row, 'activation_checkpointing') or 'not stated'}")
    if text(row, "dtype.params") not in ("fp32", "float32") or not text(row, "dtype.compute").startswith("bf16"):
        raise SetAside("types other than torchtitan's fp32 weights and bf16 computation")
