"""Quantised weights under tensor parallel: the trace of a rank against two real ones that transformers loads on gloo.

Gloo's threads may hold what a collective put out for longer than the pass does: such a launch stands above and is
repeated, none may stand below.
"""

from pathlib import Path

import pytest

from tests.support.generation_reference import peaks_of_trace
from tests.support.split_generation import KINDS, RANKS, STAGES, real, traced, write_checkpoint

LAUNCHES = 4


def check(kind: str, folder: Path, compared: int) -> None:
    write_checkpoint(folder, kind)
    ours = [traced(kind, rank) for rank in range(compared)]
    peaks = [peaks_of_trace(trace) for trace, _ in ours]
    seen: list[list[int]] = []
    for _ in range(LAUNCHES):
        runs = real(kind, folder)[:compared]
        assert [held for _, held in ours] == [run["held"] for run in runs]
        seen = [run["peaks"] for run in runs]
        for mine, real_ones in zip(peaks, seen, strict=True):
            assert all(peak >= own for peak, own in zip(real_ones, mine, strict=True))
        if seen == peaks:
            return
    assert seen == peaks


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_holds_and_takes_what_it_really_does(kind: str, tmp_path: Path) -> None:
    check(kind, tmp_path, 1)


@pytest.mark.slow
def test_a_prompt_in_pieces_over_stages(tmp_path: Path) -> None:
    check(STAGES, tmp_path, RANKS)
