"""Mirrored kernels against the streams of the real liger-kernel package (benchmarks/real/liger_reference.py)."""

import json

import pytest

from tests.accuracy.liger_cases import GOLDEN, MODELS, LigerCase, built, cases, stream, traced

RECORDED = json.loads(GOLDEN.read_text())
QUICK = {"llama", "gemma3", "phi3"}


def _parameters() -> list[object]:
    return [
        pytest.param(case, id=case.label, marks=() if case.model in QUICK else pytest.mark.slow) for case in cases()
    ]


@pytest.mark.parametrize("case", _parameters())
def test_every_allocation_and_free_in_order(case: LigerCase) -> None:
    assert stream(traced(built(case), case)) == RECORDED["streams"][case.label]


def test_the_recorded_streams_differ_from_each_other_and_from_the_model_s_own() -> None:
    digests = [entry["sha256"] for entry in RECORDED["streams"].values()]
    assert len(set(digests)) > len(digests) - len(MODELS)  # llama and mistral are one architecture here
    case = LigerCase(model="llama", regime="mixed", fused=("layers", "loss"))
    own = stream(traced(built(case), case, mirrored=False))
    assert own["peak"] > RECORDED["streams"][case.label]["peak"]
