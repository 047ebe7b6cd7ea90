"""Kernels' temporaries whose bytes follow a rule of counts: no line through a few sizes tells those between."""

from typing import Protocol

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
