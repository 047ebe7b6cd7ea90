"""What is to be generated: the options of one inference job, each with where its value came from."""

from dataclasses import field
from enum import StrEnum

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.workload.precisions import DEFAULT_WEIGHTS, WeightType
from gpu_plan.planner.workload.settled import Basis, Settled
from gpu_plan.planner.workload.training import Attention

MOST_TOKENS = 2**23
"""Tokens of a batch that are traced at most: masks and ids up to this size have known values while tracing."""


class CacheType(StrEnum):
    """In what type keys and values are kept."""

    AUTO = "auto"
    """That of the computation, as every cache of transformers does unless it quantises."""
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    """transformers' QuantizedCache with its fp8 backend: float8_e4m3fn, one scale per tensor."""


class CacheKind(StrEnum):
    """Which cache of transformers is used, as `generate(cache_implementation=...)`."""

    DYNAMIC = "dynamic"
    """Grows by `torch.cat` with every token: what `generate` does unless told otherwise."""
    STATIC = "static"
    """Allocated whole at the first token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferWorkload(Settled):
    """One generation. `None` means: to be searched."""

    task: str = "infer"
    context: int = 4096
    """Prompt plus new tokens of one sample."""
    batch: int = 1
    """Samples that are generated together, on all replicas together."""
    new_tokens: int = 1
    precision: WeightType = DEFAULT_WEIGHTS
    """Type of the weights that are not quantised, and of the computation."""
    kv_dtype: CacheType = CacheType.AUTO
    cache: CacheKind = CacheKind.DYNAMIC
    chunk: int | None = None
    """Tokens of the prompt that one forward pass takes; None: all of them."""
    quantize: str = "none"
    """How weights are quantised: `none`, `stored` (as the checkpoint has them), or a kind."""
    attention: Attention = Attention.SDPA
    strategy: str | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    offload: str | None = None
    """`none`: all weights on GPUs; `all`: whatever does not fit goes to the CPU and then to disk."""
    settings: tuple[tuple[str, str], ...] = ()
    basis: tuple[tuple[str, Basis], ...] = field(default=(), compare=False)

    @property
    def prompt(self) -> int:
        """Tokens of the prompt of one sample."""
        return self.context - self.new_tokens


__all__ = ["MOST_TOKENS", "CacheKind", "CacheType", "InferWorkload", "WeightType"]
