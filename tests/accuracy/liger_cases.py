"""Steps of tiny models with Liger's kernels, and the streams that the real liger-kernel package makes of them."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

import gpu_plan.planner.model
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import training_batch
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.support.replay_cpu import HOST_SCALAR_BYTES, signed_bytes

_CATALOG = Path(gpu_plan.planner.model.__file__).parent / "catalog"
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "liger_streams.json"
MICRO_BATCH = 3
_SIZES = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "head_dim": 16,
    "pad_token_id": 0,
}
MODELS = {
    "llama": "meta-llama--Meta-Llama-3-8B",
    "qwen3": "Qwen--Qwen3-0.6B",
    "qwen2": "Qwen--Qwen2-0.5B",
    "mistral": "mistralai--Mistral-7B-Instruct-v0.3",
    "gemma": "google--gemma-2b",
    "gemma2": "google--gemma-2-2b",
    "gemma3": "google--gemma-3-1b-it",
    "phi3": "microsoft--Phi-3-mini-128k-instruct",
    "smollm3": "HuggingFaceTB--SmolLM3-3B",
    "olmo2": "allenai--OLMo-2-0325-32B",
    "granite": "ibm-granite--granite-3.2-2b-instruct",
}
REGIMES = {
    "mixed": Regime(weights="float32", autocast="bfloat16", outputs_to_fp32=True),
    "bfloat16": Regime(weights="bfloat16"),
    "float32": Regime(weights="float32"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LigerCase:
    """What is traced on both sides."""

    model: str
    regime: str
    fused: tuple[str, ...]
    checkpointing: Checkpointing = Checkpointing.NONE

    @property
    def label(self) -> str:
        """Name of the case in the golden file."""
        ends = "" if self.checkpointing is Checkpointing.NONE else ", checkpointing"
        return f"{self.model}, {self.regime}, {'+'.join(self.fused)}{ends}"


def cases() -> list[LigerCase]:
    """Every model with all kernels in three regimes, and mixed precision with the loss or the layers alone."""
    found = []
    for model in MODELS:
        both = ("layers", "loss")
        found += [LigerCase(model=model, regime=regime, fused=both) for regime in REGIMES]
        found.append(LigerCase(model=model, regime="bfloat16", fused=both, checkpointing=Checkpointing.FULL))
        alone = ("layers",) if model == "granite" else ("layers", "loss")
        found += [LigerCase(model=model, regime="mixed", fused=(part,)) for part in alone]
    return found


def built(case: LigerCase) -> nn.Module:
    """The tiny model on meta."""
    values: dict[str, Any] = json.loads((_CATALOG / f"{MODELS[case.model]}.json").read_text())
    for key in ("layer_types", "rope_scaling", "rope_parameters"):
        values.pop(key, None)
    return build_model({**values, **_SIZES})


def traced(model: nn.Module, case: LigerCase, *, mirrored: bool = True) -> StepTrace:
    """The step on an H100's kernels; `mirrored=False` leaves the model as it is (patched by the real package)."""
    tracer = Tracer(
        model=model,
        make_batch=lambda _, micro_batch, seq_len: training_batch(model, batch=micro_batch, seq_len=seq_len),
        profile=CudaProfile(),
        has_sequence=True,
        fold=False,
    )
    variant = StepVariant(
        regime=REGIMES[case.regime],
        checkpointing=case.checkpointing,
        attention=Attention.SDPA,
        stack=Stack.ACCELERATE,
        seq_len=48,
        fused=case.fused if mirrored else (),
    )
    return tracer.trace(variant, MICRO_BATCH)


def stream(trace: StepTrace) -> dict[str, Any]:
    """Allocations and frees in order, as a digest with their number and the peak; host scalars are left out."""
    signed = signed_bytes(trace, MICRO_BATCH)
    signed = signed[np.abs(signed) > HOST_SCALAR_BYTES]
    return {
        "events": len(signed),
        "peak": int(np.cumsum(signed).max()),
        "sha256": hashlib.sha256(signed.astype("<i8").tobytes()).hexdigest()[:16],
    }
