"""Runs of torchtitan's Llama 3 8B under FSDP2, as their rows tell, or the reason why a row is set aside."""

from dataclasses import dataclass

from benchmarks.published_rows import Row
from benchmarks.titan_model import Float8, Loss, Norm, Recompute, Titan
from gpu_plan.planner.workload.training import Attention

_RECOMPUTE: dict[str, Recompute] = {
    "none": "none",
    "full": "full",
    "selective (every 2nd layer)": "every-2nd",
    "selective (per-op)": "op",
    "selective (per-op) assumed default": "op",
}
"""What the rows call it; `every 2nd` and `per-op` are torchtitan's two kinds of `selective`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TitanCase:
    """One row as it ran."""

    titan: Titan
    ranks: int
    attention: Attention
    """torchtitan asked torch for SDPA, which chose flash attention on Hopper until torchtitan named cuDNN's first
    (models/attention.py, 2025)."""
    reshard: str
    """`default` (all blocks but the last), `always`, `never`: parallelize_llama.py: apply_fsdp."""
    strategy: str = "fsdp"

    @property
    def cluster(self) -> str:
        """As `--gpus` takes it."""
        return f"{max(self.ranks // 8, 1)}x8xH100-96GB" if self.ranks > 8 else f"{self.ranks}xH100-96GB"

    @property
    def seq_len(self) -> int:
        return self.titan.seq_len

    @property
    def kernels(self) -> str:
        """What tells one run from another."""
        words = [f"float8 {self.titan.float8}"] if self.titan.float8 else []
        words += [f"recompute {self.titan.recompute}", f"{self.titan.norm} norm", f"{self.titan.loss} loss"]
        words += ["blocks compiled"] if self.titan.compiled != "nothing" else []
        return ", ".join([*words, *([f"reshard {self.reshard}"] if self.reshard != "default" else [])])

    def states(self, parameters: int) -> int:
        """Weights and two moments in fp32: gradients are there when activations no longer are."""
        return 12 * parameters // self.ranks


def titan_case_of(row: Row) -> TitanCase | str:
    """How a row ran, or why it is set aside."""
    reason = _reason(row)
    if reason is not None:
        return reason
    notes = str(row["notes"])
    late = str(row["strategy"]).startswith("FSDP2 eager")
    norm: Norm = "fused" if late or "after nn.RMSNorm" in notes else "written-out"
    loss: Loss = "chunked" if "chunked" in str(row["fused_or_chunked_loss"]) else "whole"
    return TitanCase(
        titan=Titan(
            seq_len=row["seq_len"],
            recompute=_RECOMPUTE[str(row["activation_checkpointing"])],
            norm=norm,
            loss=loss,
            float8=_float8(str(row["dtype"]["compute"])),
            compiled="blocks" if row["compile"] else "nothing",
        ),
        ranks=row["gpu"]["count"],
        attention=Attention.SDPA if late else Attention.FLASH,
        reshard=next((word for word in ("always", "never") if f"reshard_after_forward {word}" in notes), "default"),
    )


def _float8(compute: str) -> Float8:
    if "float8" not in compute:
        return ""
    return "nocompile" if "nocompile" in compute else "tensorwise"


def _reason(row: Row) -> str | None:
    notes = str(row["notes"])
    if row["confidence"] == "low":
        return "configuration incomplete"
    if row["compile"] and not str(row["gpu"]["model"]).startswith("H100"):
        return "compiled for a GPU other than H100, by a torchtitan of unknown day"
    if row["compile"] and "June 2025" in notes:
        return "torchtitan of June 2025 is not mirrored"
    unlike = next((word for word in ("rowwise", "all-gather") if word in str(row["quantization"])), None)
    if row["compile"] and unlike is not None:
        return f"float8 {unlike} is not mirrored"
    if row["parallel"]["tp"] > 1:
        return "tensor parallelism"
    if not str(row["strategy"]).startswith("FSDP2"):
        return f"{row['strategy'].split(',')[0]} is not modelled"
    return "FSDP2 as torch had it in June 2024" if "A100" in row["gpu"]["model"] else None
