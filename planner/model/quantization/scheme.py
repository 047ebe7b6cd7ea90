"""What a way to quantise is, and what it made of a model, as plain values: nothing here needs torch."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from gpu_plan.planner.model.source.headers import StoredTensor
from gpu_plan.planner.plain.values import dataclass


class Method(StrEnum):
    """Whose format the weights are stored in."""

    INT8 = "int8"
    """bitsandbytes LLM.int8()."""
    BNB_4BIT = "4bit"
    """bitsandbytes NF4 or FP4."""
    GPTQ = "gptq"
    AWQ = "awq"
    FP8 = "fp8"
    """transformers' fine-grained FP8: DeepSeek's and Qwen3's blocks, or one scale per tensor."""
    COMPRESSED = "compressed-tensors"
    MXFP4 = "mxfp4"
    TORCHAO = "torchao"
    GGUF = "gguf"


class Runtime(StrEnum):
    """Whose layers run where a format has had several; a declared variant for comparing with older figures."""

    CURRENT = "current"
    """What transformers of this version loads such a checkpoint with."""
    AUTOGPTQ = "autogptq-0.7"
    AUTOAWQ = "autoawq-0.2"


FP8_CAPABILITY = (8, 9)
"""From which CUDA compute capability transformers computes with FP8 weights; below it dequantises them
(quantizer_finegrained_fp8.py and quantizer_compressed_tensors.py: validate_environment)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One way to store a model's weights, read from its config or from `--quantize`."""

    method: Method
    word: str
    """The word of `--quantize` that names it: `nf4-dq`, `gptq-4bit-128`, `fp8`."""
    bits: int
    """Of one stored element, without its scales; 0 where tensors differ (GGUF)."""
    group_size: int | None = None
    """Elements of a row that share one scale; None: by tensor, channel or block, as the fields below say."""
    block: tuple[int, int] | None = None
    """Rows and columns that share one scale (FP8)."""
    number: str = "int"
    """`int`, `float`, `nf4` or `fp4`: what the stored bits mean."""
    prequantised: bool = False
    """Whether a published checkpoint is stored this way, rather than quantised while it is loaded."""
    skip: tuple[str, ...] | None = None
    """Modules that stay as they are, as the config names them; None: the method's own choice."""
    double_quant: bool = False
    """Whether the block scales are quantised as well (bnb_4bit_use_double_quant)."""
    symmetric: bool = True
    """Whether zero points are fixed; asymmetric GPTQ and AWQ use stored ones."""
    desc_act: bool = False
    """Whether GPTQ ordered its columns by activation, which keeps g_idx in use."""
    activations: str | None = None
    """`dynamic` or `static` where activations are quantised too, else None."""
    scale_dtype: str = "float32"
    """torch dtype of the scales where the config decides it: float8_e8m0fnu for `ue8m0`."""
    compute_dtype: str | None = None
    """bnb_4bit_compute_dtype; None: that of the model."""
    quant_storage: str = "uint8"
    """bnb_4bit_quant_storage."""
    threshold: float = 6.0
    """llm_int8_threshold: activations at or above it take the 16-bit path."""
    runtime: Runtime = Runtime.CURRENT
    path: str | None = None
    """The GGUF file."""
    config: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """The `quantization_config` as published; empty for an option."""

    @property
    def rest_dtype(self) -> str | None:
        """torch dtype in which published checkpoints of the method keep what is not quantised; None for no rule.

        For a config that does not say: transformers then takes the first floating type of the checkpoint.
        """
        if not self.prequantised or self.method is Method.GGUF:
            return None
        return "float16" if self.method in (Method.GPTQ, Method.AWQ) else "bfloat16"

    def key(self) -> str:
        """Stable text that names the scheme in caches."""
        values = {name: str(getattr(self, name)) for name in self.__dataclass_fields__ if name != "config"}
        text = json.dumps([values, dict(self.config), _seen(self.path)], sort_keys=True, default=str)
        return f"{self.word}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _seen(path: str | None) -> tuple[int, int] | None:
    """Length and time of a file's last change, so that a changed one is another key."""
    try:
        found = os.stat(path) if path else None
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The GPU whose kernels run, as far as kernels choose by it."""

    capability: tuple[int, int] | None = (9, 0)
    """CUDA compute capability; None for a CPU."""
    sm_count: int = 132
    """Streaming multiprocessors."""

    def reaches(self, capability: tuple[int, int]) -> bool:
        """Whether the GPU has at least that compute capability; a CPU has none."""
        return self.capability is not None and self.capability >= capability


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedFacts:
    """What quantising made of a model."""

    scheme: Scheme
    layers: int
    """Modules that were replaced."""
    parameters: int
    """Elements of the model as it was built, tied weights once."""
    quantised_parameters: int
    """Elements that are now stored in `scheme.bits`."""
    resident_bytes: int
    """Parameters and buffers as they stand on the GPU, tied weights once."""
    checkpoint: Mapping[str, StoredTensor]
    """Tensors of a checkpoint in this format, name to (shape, torch dtype name), tied weights once. Buffers that are
    not saved are left out."""
    kept: tuple[str, ...]
    """Linear layers and embeddings that stay as they were."""
    kernel: str
    """Whose product runs: project, file and function."""
    notes: tuple[str, ...] = ()
    """One line each."""

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of the checkpoint's tensors, without headers."""
        from gpu_plan.planner.model.source.headers import collect

        found = collect([self.checkpoint])
        return found.bytes if found else 0

    @property
    def bits_per_weight(self) -> float:
        """Resident bits per element of the unquantised model, all included."""
        return 8 * self.resident_bytes / max(1, self.parameters)
