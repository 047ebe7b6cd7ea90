"""Every field that a launch writes stands in docs/launch-files.md, with whose it is; nothing stands there in vain."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.written_fields import written

PAGE = Path(__file__).parents[3] / "docs" / "launch-files.md"
PLACES = ("accelerate.yaml", "deepspeed.json", "environment", "runner", "launcher", "script")


@cache
def fields() -> frozenset[tuple[str, str]]:
    return frozenset(written())


def listed() -> dict[tuple[str, str], str]:
    """Whose each field is, by place and field, as the page has it."""
    found: dict[tuple[str, str], str] = {}
    place = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            place = line.removeprefix("## ").strip("`")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 3:
            for name in re.findall(r"`([^`]+)`", cells[0]):
                assert (place, name) not in found, f"{name} stands twice under {place}"
                found[place, name] = cells[1]
    return found


@pytest.mark.parametrize("place", PLACES)
def test_every_field_that_is_written_is_listed_with_its_owner(place: str) -> None:
    wanted = {name for where, name in fields() if where == place}
    there = {name for where, name in listed() if where == place}
    assert wanted, "nothing was written there"
    assert wanted - there == set(), f"written to {place}, and not in docs/launch-files.md"
    assert there - wanted == set(), f"in docs/launch-files.md, and never written to {place}"


def test_places_and_owners_are_known() -> None:
    assert {place for place, _ in (*fields(), *listed())} == set(PLACES)
    owners = {owner.strip() for whose in listed().values() for owner in whose.split(",")}
    assert owners <= {"plan", "user", "script", "none"}
