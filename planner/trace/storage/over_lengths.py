"""A trace over sequence lengths as bytes and back: its trace at the first, and how every number grows from there."""

from dataclasses import replace

from gpu_plan.planner.trace.rules import PartialSums, Ruled, ScratchRule, SortedIndices
from gpu_plan.planner.trace.sizes.lengths import Grown, Lengths
from gpu_plan.planner.trace.storage.archive import CorruptTraceError
from gpu_plan.planner.trace.storage.columns import CorruptColumnError, packed, unpacked
from gpu_plan.planner.trace.storage.framed import framed, unframed

_FORMAT = 1


def written_lengths(lengths: Lengths) -> bytes:
    """Uncompressed."""
    columns = [packed(lengths.shape_of)]
    columns += [packed(part) for grown in lengths.grown.values() for part in (grown.slope, grown.bend)]
    rest = {
        "first": lengths.first,
        "last": lengths.last,
        "shapes": list(lengths.shapes),
        "rules": [
            [place, *_words(ruled.rule), ruled.fixed, ruled.per_sample]
            for place, ruled in enumerate(lengths.trace.tensor_rule)
            if ruled is not None
        ],
        "grown": [[name, len(grown.slope)] for name, grown in lengths.grown.items()],
    }
    return framed(replace(lengths.trace, tensor_rule=[]), _FORMAT, rest, columns)


def read_lengths(content: bytes) -> Lengths:
    """The trace that was written as `content`; CorruptTraceError where there is none."""
    try:
        trace, rest, columns = unframed(content, _FORMAT)
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
