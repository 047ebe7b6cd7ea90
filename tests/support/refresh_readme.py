"""Puts into README.md what the program prints today, and publishes the JSON Schemas: `make readme`.

An excerpt stands between `<!-- plan WORDS -->` and `<!-- end -->`.
"""

import contextlib
import io
import os
import re
from pathlib import Path

from docs.site import schemas
from gpu_plan.cli import main

README = Path(__file__).resolve().parents[2] / "README.md"
_EXCERPT = re.compile(r"(<!-- plan (?P<words>[^\n]*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def refreshed(text: str) -> str:
    """README text with every excerpt made again at 80 columns."""
    return _EXCERPT.sub(lambda found: f"{found[1]}```text\n{_output(found['words'].split())}```\n{found[3]}", text)


def _output(words: list[str]) -> str:
    os.environ["COLUMNS"] = "80"
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(words)
    return out.getvalue()


if __name__ == "__main__":
    README.write_text(refreshed(README.read_text(encoding="utf-8")), encoding="utf-8")
    schemas.write()
