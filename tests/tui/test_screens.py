"""Whole screens at fixed sizes against golden files; `python -m tests.support.explorer_scenes` writes them anew."""

import pytest

from tests.support.explorer_scenes import FOLDER, SHOTS, taken
from tests.support.sample import sample

pytestmark = pytest.mark.asyncio
TOLD_ELSEWHERE = ("wide", "no_colour", "nothing_fits", "compare", "form", "export")
"""Their content is held by test_app and its neighbours in `make test`; their pictures by `make prove`."""


@pytest.mark.parametrize("name", sample(SHOTS, kept=[name for name in SHOTS if name not in TOLD_ELSEWHERE]))
async def test_screen(name):
    shot, text = SHOTS[name], await taken(SHOTS[name])
    lines = text.splitlines()
    assert len(lines) == shot.size[1]
    assert max(map(len, lines)) <= shot.size[0]
    if shot.ascii_only:
        assert text.isascii()
    assert text == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


async def test_every_golden_screen_is_taken():
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(SHOTS)
