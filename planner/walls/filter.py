"""Assembles a seccomp filter from rules: a small BPF program over the number and arguments of a system call. Pure.

Offsets are those of struct seccomp_data (include/uapi/linux/seccomp.h), on a little-endian machine.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _GREATER, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16


@dataclass(frozen=True, slots=True)
class Condition:
    """What the low 32 bits of an argument must be: after `mask`, one of `values`."""

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    negated: bool = False
    """Whether none of `values` passes, and everything else does."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A call that is answered with `error`, 0 for a success that does nothing, unless it meets all of `conditions`.

    Without conditions it is always answered so.
    """

    call: str
    error: int
    conditions: tuple[Condition, ...] = ()


Instruction = tuple[int, int, int, int]


def assemble(
    rules: Sequence[Rule], numbers: dict[str, int], *, architecture: int, last: int, unknown: int
) -> list[Instruction]:
    """The program; calls that the machine does not have are left out, those beyond `last` fail with `unknown`."""
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_GREATER, 0, 1, last),
        (_RETURN, 0, 0, _ERRNO | unknown),
    ]
    for rule in rules:
        if rule.call in numbers:
            body = _body(rule)
            # Jumps reach 255 instructions: a rule is shorter than that.
            program += [(_EQUAL, 0, len(body), numbers[rule.call]), *body]
    return [*program, (_RETURN, 0, 0, ALLOW)]


def _body(rule: Rule) -> list[Instruction]:
    """Ends in one answer or the other."""
    refused = (_RETURN, 0, 0, _ERRNO | rule.error)
    body: list[Instruction] = []
    for condition in rule.conditions:
        body += [(_LOAD, 0, 0, _ARGUMENTS + 8 * condition.argument), (_AND, 0, 0, condition.mask)]
        if condition.negated:
            for value in condition.values:
                body += [(_EQUAL, 0, 1, value), refused]
        else:
            for position, value in enumerate(condition.values):
                body.append((_EQUAL, len(condition.values) - position, 0, value))
            body.append(refused)
    return [*body, (_RETURN, 0, 0, ALLOW)] if rule.conditions else [refused]


def packed(program: Sequence[Instruction]) -> bytes:
    """As struct sock_filter lies in memory."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
