"""Single kernels against published GPU peaks: what is committed is what the code says, and it is exact."""

import json
from typing import Any

import pytest

from benchmarks.component_memory import HERE, markdown, run

ROWS: list[dict[str, Any]] = json.loads((HERE / "data" / "published_components.json").read_text())["rows"]
COMMITTED: dict[str, Any] = json.loads((HERE / "results" / "component_memory.json").read_text())
SAMPLE = ("0006", "0012", "0016", "0020", "0024", "0036", "0044", "0048", "0056", "0067", "0072", "0076", "0080")


@pytest.mark.parametrize("number", SAMPLE)
def test_the_committed_figures_are_those_of_the_code(number: str) -> None:
    name = f"cm-liger-kernel-{number}"
    (line,) = run([row for row in ROWS if row["id"] == name])["compared"]
    assert line == next(line for line in COMMITTED["compared"] if line["id"] == name)


def test_every_row_is_compared_or_set_aside() -> None:
    assert len(COMMITTED["compared"]) + sum(COMMITTED["set_aside"].values()) == len(ROWS)
    assert len(COMMITTED["compared"]) == 80


def test_kernels_meet_the_gpu_s_own_counter() -> None:
    """The source prints MiB with five digits or so; one row of Liger's fused loss is 1 MiB off in 4.8 GiB."""
    errors = sorted(abs(line["error"]) for line in COMMITTED["compared"])
    assert errors[-1] < 4e-4
    assert errors[len(errors) // 2] < 1e-5
    assert max(abs(line["estimate"] - line["measured"]) for line in COMMITTED["compared"]) < 1.1 * 2**20


def test_the_page_is_what_the_figures_say() -> None:
    assert (HERE / "results" / "component_memory.md").read_text() == markdown(COMMITTED)
