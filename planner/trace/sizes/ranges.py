"""Micro batches that share one linear trace. Nothing here imports torch."""

from collections.abc import Iterator

RANGES = ((2, 4, 16), (4, 8, 16), (16, 32, 64), (64, 128, 256))
"""Points at which a range is recorded: between the outer ones a trace holds, once structure and sizes agree at all.

The second is for what changes below a few thousand tokens, as the embedding's backward kernel does.
"""


def ranges_for(micro_batch: int, *, alone: bool = False) -> Iterator[tuple[int, ...]]:
    """Recordings that can serve a micro batch, widest first, itself alone last.

    A single sample has a structure of its own (views instead of copies), so it always stands alone; and so does each
    size (`alone`) of a compiled step, whose graphs are made for it.
    """
    if micro_batch > 1 and not alone:
        yield from (points for points in RANGES if points[0] <= micro_batch <= points[-1])
    yield (micro_batch,)
