"""Runs of KempnerForge's dense models, by rule from their rows."""

from dataclasses import dataclass

from benchmarks.accuracy.kempnerforge.model import Forge
from benchmarks.accuracy.row import Row, SetAside, is_true, needed, number, text, whole
from gpu_plan.planner.hardware.cluster import Cluster

_MOST_TOKENS = 2**17


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeCase:
    """One row as it ran."""

    forge: Forge
    cluster: str
    """As `--gpus` takes it."""
    ranks: int
    accumulation: int
    fused: bool

    @property
    def seq_len(self) -> int:
        return self.forge.seq_len

    def states(self, parameters: int) -> int:
        """bf16 weights and two moments, sharded, and fp32 gradients that accumulate whole (parallel.py:
        default_mp_policy; torch's _fsdp_param.py: to_accumulated_grad_if_needed); `parameters` are one rank's."""
        shards = self.ranks // self.forge.tensor
        return 6 * parameters // shards + (4 * parameters if self.accumulation > 1 else 2 * parameters // shards)

    @property
    def kernels(self) -> str:
        """What tells one run from another."""
        words = [f"TP {self.forge.tensor}, sequence parallel"] if self.forge.tensor > 1 else []
        words += ["blocks compiled"] if self.forge.compiled else []
        return ", ".join(["written-out norm", *words, f"accumulation {self.accumulation}"])


def forge_case_of(row: Row, cluster: Cluster) -> ForgeCase:
    """SetAside where the row is no dense model under FSDP2 that this mirrors."""
    _check(row)
    if cluster.world_size == 1:
        raise SetAside("FSDP2 on one GPU")
    hidden = needed(row, "arch.hidden_size", "hidden of the model", 2**20)
    factor = number(row, "arch.ffn_dim_multiplier") or 1.0
    heads = needed(row, "arch.num_attention_heads", "heads of the model", 2**12)
    return ForgeCase(
        forge=Forge(
            dim=hidden,
            layers=needed(row, "arch.num_hidden_layers", "layers of the model", 2**12),
            heads=heads,
            kv_heads=whole(row, "arch.num_key_value_heads") or heads,
            hidden=whole(row, "arch.intermediate_size") or -(-int(4 * hidden * (2 / 3) * factor) // 256) * 256,
            vocab=needed(row, "arch.vocab_size", "vocab of the model", 2**24),
            seq_len=needed(row, "seq_len", "sequence length", _MOST_TOKENS),
            tensor=whole(row, "parallel.tp") or 1,
            recomputed=text(row, "activation_checkpointing").startswith("full"),
            compiled=is_true(row, "compile"),
        ),
        cluster=cluster.spec,
        ranks=cluster.world_size,
        accumulation=needed(row, "grad_accum", "accumulation", 2**12),
        fused="fused" in text(row, "optimizer").lower(),
    )


def _check(row: Row) -> None:
    # kempnerforge/model/moe.py: grouped_expert_forward pads every expert to max(tokens_per_expert), which no source of
    # the rows tells: a block keeps 1.9 GiB of pm-kempnerforge-0084 where experts are chosen evenly and 15 GiB where all
    # tokens choose the same, and its gradients as much again.
    if "moe" in text(row, "model").lower() or (whole(row, "parallel.ep") or 1) > 1:
        raise SetAside("KempnerForge's experts, padded to the fullest one's tokens, which nobody has told")
    if (whole(row, "parallel.pp") or 1) > 1:
        raise SetAside("KempnerForge's pipeline stages")
    if not text(row, "dtype.params").startswith(("bfloat16", "bf16")):
        raise SetAside("types other than KempnerForge's bf16 weights")
