"""Which generation is recorded: everything that changes its allocations, and nothing that does not."""

from dataclasses import dataclass

from gpu_plan.planner.workload.generation import CacheKind, CacheType
from gpu_plan.planner.workload.training import Attention


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationVariant:
    """One call of `generate` on one rank's part of the model."""

    prompt: int
    """Tokens of the prompt; of the encoder's input where there is an encoder."""
    prefix: int = 0
    """Tokens that the decoder of an encoder-decoder has generated before; 0 elsewhere."""
    steps: int
    """Forward passes: the prefill, then decode steps."""
    batch: int
    dtype: str
    cache: CacheKind = CacheKind.DYNAMIC
    cache_length: int | None = None
    """Tokens that a static cache holds; None for a cache that grows."""
    kv_dtype: CacheType = CacheType.AUTO
    attention: Attention
    chunks: tuple[int, ...] = ()
    """Tokens of each pass of a prefill in pieces, which are the whole prompt; none: one pass."""
    quantize: str = "none"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    stage: int = 0
    """Which of the pipeline's stages."""

    @property
    def ranks(self) -> int:
        """Processes that one replica runs in."""
        return self.tensor_parallel * self.pipeline_parallel

    def key(self) -> str:
        """Stable text that names the variant in caches."""
        pieces = f" chunks={'+'.join(map(str, self.chunks))}" if self.chunks else ""
        return (
            f"generate prompt={self.prompt}+{self.prefix} steps={self.steps} batch={self.batch} dtype={self.dtype} "
            f"cache={self.cache} {self.cache_length} {self.kv_dtype} attention={self.attention} "
            f"quantize={self.quantize} tp={self.tensor_parallel} pp={self.stage}/{self.pipeline_parallel}{pieces}"
        )
