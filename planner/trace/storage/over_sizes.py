"""A generation over prompts and batches as bytes and back: its trace at the least, and how every number grows."""

import numpy as np

from gpu_plan.planner.trace.sizes.planes import Plane, Split
from gpu_plan.planner.trace.storage.archive import CorruptTraceError
from gpu_plan.planner.trace.storage.columns import CorruptColumnError, packed, unpacked
from gpu_plan.planner.trace.storage.framed import framed, unframed

_FORMAT = 1


def written_plane(plane: Plane) -> bytes:
    """Uncompressed."""
    columns = [packed(plane.shape_of)]
    columns += [packed(term) for grown in plane.grown.values() for term in grown]
    rest = {
        "least": list(plane.least),
        "most": list(plane.most),
        "shapes": list(plane.shapes),
        "splits": [[one.place, one.heads, one.queries, one.width, one.samples, one.keys] for one in plane.splits],
        "grown": [[name, *grown.shape] for name, grown in plane.grown.items()],
    }
    return framed(plane.trace, _FORMAT, rest, columns)


def read_plane(content: bytes) -> Plane:
    """The generation that was written as `content`; CorruptTraceError where there is none."""
    try:
        trace, rest, columns = unframed(content, _FORMAT)
        shape_of = unpacked(next(columns), trace.num_tensors)
        grown = {
            str(name): np.stack([unpacked(next(columns), int(count)) for _ in range(int(terms))])
            for name, terms, count in rest["grown"]
        }
        (least, first), (most, last) = rest["least"], rest["most"]
        return Plane(
            least=(int(least), int(first)),
            most=(int(most), int(last)),
            trace=trace,
            shapes=[str(text) for text in rest["shapes"]],
            shape_of=shape_of,
            splits=[
                Split(place=place, heads=heads, queries=queries, width=width, samples=samples, keys=keys)
                for place, heads, queries, width, samples, keys in rest["splits"]
            ],
            grown=grown,
        )
    except (KeyError, ValueError, TypeError, IndexError, StopIteration, CorruptColumnError) as problem:
        raise CorruptTraceError(str(problem)) from None


__all__ = ["read_plane", "written_plane"]
