"""A trace over sequence lengths as bytes and back: its trace at the first, and how every number grows from there."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np

from gpu_plan.planner.trace.rules import PartialSums, Ruled, ScratchRule, SortedIndices
from gpu_plan.planner.trace.sizes.lengths import Grown, Lengths
from gpu_plan.planner.trace.storage.archive import CorruptTraceError, read, written
from gpu_plan.planner.trace.storage.columns import CorruptColumnError, packed, unpacked

_FORMAT = 1


def written_lengths(lengths: Lengths) -> bytes:
    """Uncompressed."""
    trace = written(replace(lengths.trace, tensor_rule=[]))
    columns = [packed(lengths.shape_of)]
    columns += [packed(part) for grown in lengths.grown.values() for part in (grown.slope, grown.bend)]
    rest = {
        "format": _FORMAT,
        "first": lengths.first,
        "last": lengths.last,
        "shapes": list(lengths.shapes),
        "rules": [
            [place, *_words(ruled.rule), ruled.fixed, ruled.per_sample]
            for place, ruled in enumerate(lengths.trace.tensor_rule)
            if ruled is not None
        ],
        "grown": [[name, len(grown.slope)] for name, grown in lengths.grown.items()],
        "columns": [len(column) for column in columns],
    }
    text = json.dumps(rest, separators=(",", ":")).encode()
    return b"".join([len(trace).to_bytes(8, "little"), trace, len(text).to_bytes(8, "little"), text, *columns])


def read_lengths(content: bytes) -> Lengths:
    """The trace that was written as `content`; CorruptTraceError where there is none."""
    end = 8 + int.from_bytes(content[:8], "little")
    trace = read(content[8:end])
    try:
        raw = content[end:]
        start = 8 + int.from_bytes(raw[:8], "little")
        rest = json.loads(raw[8:start])
        if rest["format"] != _FORMAT:
            raise CorruptTraceError("another format")
        ends = np.cumsum([start, *rest["columns"]]).tolist()
        columns = (raw[first:last] for first, last in pairwise(ends))
        shape_of = unpacked(next(columns), trace.num_tensors)
        rules: list[Ruled | None] = [None] * trace.num_tensors
        for place, rows, width, fixed, per_sample in rest["rules"]:
            rules[place] = Ruled(_rule(rows, width), int(fixed), int(per_sample))
        grown = {
            str(name): Grown(slope=unpacked(next(columns), count), bend=unpacked(next(columns), count))
            for name, count in rest["grown"]
        }
        return Lengths(
            first=int(rest["first"]),
            last=int(rest["last"]),
            trace=replace(trace, tensor_rule=rules if rest["rules"] else []),
            shapes=[str(text) for text in rest["shapes"]],
            shape_of=shape_of,
            grown=grown,
        )
    except (KeyError, ValueError, TypeError, IndexError, StopIteration, CorruptColumnError) as problem:
        raise CorruptTraceError(str(problem)) from None


def _words(rule: ScratchRule) -> tuple[int, int]:
    """Rows and width of a rule; none of sorted indices."""
    return (rule.rows, rule.width) if isinstance(rule, PartialSums) else (0, 0)


def _rule(rows: int, width: int) -> ScratchRule:
    return PartialSums(rows=int(rows), width=int(width)) if width else SortedIndices()


__all__ = ["read_lengths", "written_lengths"]
