"""What was recorded of one model serves another one that is built alike, and a first step is not taken for the rest."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.recording.recorded import Recorded
from gpu_plan.planner.trace.session import TracingSession
from gpu_plan.planner.trace.tracer import Tracer
from tests.trace.test_fold_ranges import ARCHITECTURES, build_model, recorded, tracer_of, variant

__all__ = ["recorded"]
HALF = 8
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * HALF,
    "long_factor": [2.0] * HALF,
    "original_max_position_embeddings": 128,
}


def model_with(**options: Any) -> Any:
    return build_model(ARCHITECTURES["llama-3"].config(max_position_embeddings=2048, **options))


def test_another_model_built_alike_goes_on_where_the_first_one_was(recorded: list[int]) -> None:
    first = tracer_of(model_with())
    assert first.trace(variant(16), 2).samples == (2, 4, 16)
    second = tracer_of(model_with())
    second.recorded = first.recorded
    assert second.trace(variant(16), 8).samples == (2, 4, 16)
    assert recorded == [2, 16]
    assert first.recorded.at_once(variant(16), 8, wide=False) is not None
    assert first.recorded.at_once(variant(16), 40, wide=False) is None


@pytest.mark.parametrize("length", [64, 160])
def test_frequencies_that_the_first_step_leaves_are_not_made_in_each(length: int) -> None:
    """A long rope's first step works its frequencies out, and the model keeps them."""
    tracer = tracer_of(model_with(rope_parameters=LONG_ROPE))
    first = tracer.trace(variant(length), 2)
    assert first.samples == (2, 4, 16)
    tracer.recorded = Recorded()
    again = tracer.trace(variant(length), 2)
    assert np.array_equal(first.kind, again.kind)
    assert np.array_equal(first.tensor_bytes(2), again.tensor_bytes(2))


def test_a_part_is_built_no_more_than_it_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    traced = Tracer.trace

    def counted(tracer: Tracer, asked: Any, micro_batch: int) -> Any:
        built.append(micro_batch)
        return traced(tracer, asked, micro_batch)

    monkeypatch.setattr(Tracer, "trace", counted)

    session = TracingSession(resolve("examples/tiny-llama"), device_kind(parse_cluster("2xH100").gpu), "sdpa")
    part = replace(variant(16), tensor_parallel=2)
    sizes = [session.trace(part, size).samples for size in (2, 8, 16, 2)]
    assert sizes == [(2, 4, 16)] * 4
    assert built == [2]
