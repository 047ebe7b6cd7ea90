"""Which published rows can be compared, and how each of them ran."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.training import Checkpointing, Precision, Stack

DATA = Path(__file__).parent / "data" / "published_single_gpu.json"
INSTALLED = "installed"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a row ran, as far as memory goes; rows that differ in the micro batch alone share one."""

    model: str
    seq_len: int
    checkpointing: Checkpointing
    regime: Regime
    precision: Precision
    strategy: str
    world_size: int
    fused_kernels: bool
    repeats_keys: bool
    """Whether keys and values are repeated for every query head (Mistral in transformers before 4.48; Llama's flash
    attention never did: modeling_llama.py, LlamaFlashAttention2)."""
    loss: str
    """`shifted` (transformers 4.45 to 4.48), `in-place` (one Triton kernel), `fused-linear` (no logits), or
    `installed`: nothing of the run's, what `plan` itself would say."""
    fp32_logits: bool
    """Whether the model itself puts out fp32 logits (transformers before 4.46)."""
    added_tokens: int = 0
    """By how many rows the script widened both embeddings."""
    layer_frequencies: bool = False
    """Whether every attention holds rotary frequencies of its own (transformers before 4.48)."""

    @property
    def bytes_per_parameter(self) -> int:
        """k of k·P/W: weights, gradients, two moments and the foreach optimizer's list of square roots."""
        return 5 * (4 if self.precision.is_mixed else 2)


def rows() -> list[Row]:
    """The published rows."""
    loaded: list[Row] = json.loads(DATA.read_text())["rows"]
    return loaded


def set_aside(row: Row) -> str | None:
    """Why a row is not compared, or None."""
    metric = row["primary_memory_metric"]
    if row["confidence"] == "low":
        return f"configuration incomplete: sequences of {row['seq_len_kind'].split(';')[0]}"
    if metric != "peak_allocated_gib":
        return f"reports {metric.removesuffix('_gib').replace('_', ' ')}, not peak allocated"
    return None if row["strategy"].startswith(("single", "FSDP1")) else f"{row['strategy']} is not built"


def setup_of(row: Row) -> Setup:
    """The configuration of a row of the fms-acceleration benchmarks."""
    single = row["strategy"] == "single"
    strategy, precision = ("single", Precision("bf16")) if single else ("fsdp1", Precision("bf16-mixed"))
    autocast = row["dtype"]["compute"] == "bf16"
    own = Regime(weights="bfloat16", autocast="bfloat16" if autocast else None, outputs_to_fp32=autocast)
    fused = "foak" in row["notes"]
    liger = "liger" in row["fused_or_chunked_loss"]
    return Setup(
        model=row["model"],
        seq_len=row["seq_len"],
        checkpointing=Checkpointing.FULL if row["activation_checkpointing"].startswith("full") else Checkpointing.NONE,
        regime=own if single else STRATEGIES[strategy].regime(precision, Stack.TRAINER),
        precision=precision,
        strategy=strategy,
        world_size=row["gpu"]["count"],
        fused_kernels=fused,
        repeats_keys=transformers_of(row) < (4, 48) and "mistral" in row["model"].lower(),
        fp32_logits=transformers_of(row) < (4, 46) and not liger,
        added_tokens=added_tokens(row["model"]),
        layer_frequencies=transformers_of(row) < (4, 48),
        loss="fused-linear" if liger else "in-place" if fused else "shifted",
    )


def stock(setup: Setup) -> Setup:
    """The same configuration on the installed transformers as it is: what `plan --pin` says of it."""
    regime = STRATEGIES[setup.strategy].regime(setup.precision, Stack.TRAINER)
    return replace(
        setup,
        regime=regime,
        fused_kernels=False,
        repeats_keys=False,
        fp32_logits=False,
        added_tokens=0,
        layer_frequencies=False,
        loss=INSTALLED,
    )


def added_tokens(model: str) -> int:
    """Special tokens that the runs' script found missing (fms-hf-tuning tuning/sft_trainer.py: train, and
    utils/tokenizer_data_utils.py: tokenizer_and_embedding_resize): padding for Mistral's tokenizer, padding and the
    unknown token for Llama 3's."""
    return 2 if "llama-3" in model.lower() else 1


def transformers_of(row: Row) -> tuple[int, int]:
    """Version with which the row ran."""
    version = next(word for word in row["software"].split(", ") if word.startswith("transformers "))
    major, minor = version.removeprefix("transformers ").split(".")[:2]
    return int(major), int(minor)


def differences(row: Row) -> list[str]:
    """What the estimate does not share with the run."""
    version = row["software"].split(", ")[1]
    return [
        f"modelling code of the installed transformers, not of {version}, but for loss, checkpointing and attention"
    ]
