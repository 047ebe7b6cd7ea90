"""What a plan takes, as counts: a search that does more than it did is seen here, on any machine."""

import json

from benchmarks.answers.counts import KINDS, RESULTS, count

KEPT = json.loads((RESULTS / "counts.json").read_text())
_MORE = 1.02


def test_a_plan_takes_no_more_than_it_did():
    job = next(iter(KEPT))
    found = count(job)
    assert found["ranks laid out"] > 3
    assert found["allocator events"] > found["events laid out"]
    became = {kind: (KEPT[job][kind], found[kind]) for kind in KINDS if found[kind] > _MORE * KEPT[job][kind]}
    assert became == {}, "if what it does now is worth it: python -m benchmarks.answers.counts"
    assert found["operators recorded"] == 0, "its trace is shipped"
