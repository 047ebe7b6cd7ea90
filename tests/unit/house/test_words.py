"""Words that were replaced are shown nowhere any more: tests/support/words.toml."""

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from docs.site.messages import messages

ROOT = Path(__file__).resolve().parents[3]
OLD = tomllib.loads((ROOT / "tests" / "support" / "words.toml").read_text(encoding="utf-8"))["output"]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests" / "golden").rglob("report*")]


@cache
def texts():
    """Where each stands, and what it says."""
    said = messages(("reports", "planner/search", "src/gpu_plan/commands"))
    return [(message.module, message.text) for message in said] + [
        (page.name, page.read_text(encoding="utf-8")) for page in PAGES
    ]


@pytest.mark.parametrize("old", OLD)
def test_old_words_are_gone(old):
    left = [(where, text[:120]) for where, text in texts() if re.search(old, text)]
    assert not left, f"say: {OLD[old]}"


@pytest.mark.slow
@pytest.mark.parametrize("old", OLD)
def test_old_words_are_gone_from_every_text(old):
    left = [(message.module, message.text[:120]) for message in messages() if re.search(old, message.text)]
    assert not left, f"say: {OLD[old]}"


SHOWN_ONCE = {
    "from published rates of its kin": "rates of its kin",
    "1 more alike": r"\d more alike|… more alike",
    "ZeRO-3 needs 81.4 GiB of 79.1": r"needs (at least )?\S+ GiB of [\d…]",
    "that input makes no sense": "makes? no sense",
    "gpuss is no verb": next(old for old in OLD if "none of" in old),
    "it dies of fragmentation": next(old for old in OLD if "DIES" in old),
    "NO  no plan fits this cluster": next(old for old in OLD if r"\bNO" in old),
}


@pytest.mark.parametrize("said", SHOWN_ONCE)
def test_a_pattern_finds_what_it_stands_for(said):
    assert SHOWN_ONCE[said] in OLD
    assert re.search(SHOWN_ONCE[said], said)
