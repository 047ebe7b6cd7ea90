"""Kernels' temporaries whose bytes follow a rule of counts: no line through a few sizes tells those between."""

from typing import ClassVar, Protocol

from gpu_plan.planner.plain.values import dataclass

_SORT_FREE_INDICES = 3072
_ROWS_PER_THREAD = 10


class ScratchRule(Protocol):
    """Bytes of a temporary for a count of elements."""

    def nbytes(self, count: int) -> int:
        """0 where the kernel does without it."""
        ...

    @property
    def grain(self) -> int:
        """Bytes by which rounding may lead away from a line, at either end of it."""
        ...


@dataclass(frozen=True, slots=True)
class SortedIndices:
    """One of the buffers in which the embedding's backward pass sorts its indices; one int64 each."""

    def nbytes(self, count: int) -> int:
        """Of `count` indices; few are not sorted."""
        return 8 * count if count > _SORT_FREE_INDICES else 0

    @property
    def grain(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class PartialSums:
    """Rows of fp32 that the embedding's backward pass adds up before it writes them."""

    rows: int
    """Of the weight."""
    width: int
    """Of one row."""

    def nbytes(self, count: int) -> int:
        """Of `count` indices, whose kernel is another one where they are few."""
        if count <= _SORT_FREE_INDICES:
            return 0
        return 4 * (count // _ROWS_PER_THREAD + min(count, self.rows)) * self.width

    @property
    def grain(self) -> int:
        return 4 * self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitKeys:
    """One of the accumulators of flash attention where a decode step's few blocks would not fill the device: keys are
    split over multiprocessors. Counted in samples.

    pytorch aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp: set_params_splitkv.
    """

    MOST_QUERIES: ClassVar[int] = 64
    """Of a sample; with more of them nothing is split."""
    heads: int
    queries: int
    keys: int
    width: int
    """Numbers that each row of queries has: the padded head size, or 1 of the log-sum-exp."""
    sm_count: int

    def nbytes(self, count: int) -> int:
        """Of `count` samples; 0 where keys are not split."""
        blocks = count * self.heads
        if blocks >= 0.8 * 2 * self.sm_count or self.queries > self.MOST_QUERIES:
            return 0
        splits = max(1, min(128, (2 * self.sm_count) // max(blocks, 1), -(-self.keys // 128)))
        return 0 if splits == 1 else 4 * splits * count * self.heads * self.queries * self.width

    @property
    def grain(self) -> int:
        return 0


SORTED_BUFFERS = 6


def embedding_backward(rows: int, width: int) -> tuple[ScratchRule, ...]:
    """What the backward pass of an embedding [rows, width] takes on CUDA, all at once.

    pytorch aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu: embedding_backward_cuda_kernel.
    """
    return (*(SortedIndices() for _ in range(SORTED_BUFFERS)), PartialSums(rows=rows, width=width))


@dataclass(frozen=True, slots=True)
class Ruled:
    """A rule, and the count that it is asked about: `fixed + per_sample x micro batch`."""

    rule: ScratchRule
    fixed: int
    per_sample: int = 0

    def count(self, micro_batch: int) -> int:
        return self.fixed + self.per_sample * micro_batch

    def nbytes(self, micro_batch: int) -> int:
        return self.rule.nbytes(self.count(micro_batch))
