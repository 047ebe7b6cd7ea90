"""A book's part: read piece by piece, held until it is read, read again where somebody asks twice."""

import random

import pytest

from gpu_plan.planner.trace.shipped.beginning import Beginning, packed


@pytest.mark.parametrize("seed", range(4))
def test_pieces_in_any_order_and_twice(seed: int) -> None:
    chance = random.Random(seed)
    content = b"".join(chance.randbytes(chance.randint(1, 3000)) * chance.randint(1, 900) for _ in range(6))
    part = Beginning(packed(content))
    for _ in range(60):
        first = chance.randrange(len(content))
        end = min(len(content), first + chance.randint(0, 400_000))
        assert part.piece(first, end) == content[first:end]


def test_what_was_read_is_held_no_longer() -> None:
    content = bytes(range(256)) * 20_000
    part = Beginning(packed(content))
    pieces = [(first, min(first + 300_000, len(content))) for first in range(0, len(content), 300_000)]
    for first, end in reversed(pieces):
        assert part.piece(first, end) == content[first:end]
    assert sum(map(len, part._held)) == 0
    assert part.piece(*pieces[3]) == content[slice(*pieces[3])]


def test_a_part_that_holds_less_or_is_cut_off() -> None:
    content = b"abc" * 100_000
    whole = packed(content)
    with pytest.raises(EOFError, match="holds less"):
        Beginning(whole).piece(299_990, 300_001)
    with pytest.raises(EOFError, match="cut off"):
        Beginning(whole[: len(whole) // 2]).piece(0, 300_000)
