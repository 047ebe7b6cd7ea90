"""Kinds of plans that were not traced, those with one reason in one line. Nothing here knows a format."""

from collections.abc import Sequence


def left_out_lines(left_out: Sequence[str]) -> list[str]:
    """`reason: FSDP2 × TP 2, FSDP2 × TP 4 with full checkpointing` where several share it; others as told."""
    groups: dict[str, list[str]] = {}
    for text in left_out:
        kind, colon, reason = text.partition(": ")
        groups.setdefault(reason if colon else text, []).append(kind)
    return [_line(reason, kinds) for reason, kinds in groups.items()]


def _line(reason: str, kinds: Sequence[str]) -> str:
    if len(kinds) == 1:
        return reason if kinds[0] == reason else f"{kinds[0]}: {reason}"
    ways: dict[str, list[str]] = {}
    for kind in kinds:
        title, _, checkpointing = kind.rpartition(", ")
        ways.setdefault(title or kind, []).append(checkpointing if title else "")
    every = {way for way, how in ways.items() if len(how) > 1}
    named = [way if way in every or not how[0] else f"{way} with {how[0]}" for way, how in ways.items()]
    return f"{reason}: {', '.join(named)}"
