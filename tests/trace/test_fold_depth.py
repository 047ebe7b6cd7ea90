"""Depth adds no tracing: the step of a deeper model runs the same operators. Counts, not clocks."""

import json
from itertools import product
from typing import Any

import pytest

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.catalog_index import load_index
from gpu_plan.planner.model.family import has_sequence
from gpu_plan.planner.trace.events import Kind, StepTrace
from gpu_plan.planner.trace.inputs.batch import training_batch
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.recording.recorder import Recorder
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.support.sample import sample


def traced(model_id: str, changes: dict[str, Any], checkpointing: Checkpointing) -> StepTrace:
    config = json.loads(load_index()[model_id].path.read_text())
    model = build_model(config | changes)
    tracer = Tracer(
        model=model,
        make_batch=lambda m, batch, seq: training_batch(m, batch=batch, seq_len=seq),
        profile=CudaProfile(),
        has_sequence=has_sequence(model),
    )
    variant = StepVariant(
        regime=Regime(weights="bfloat16"),
        checkpointing=checkpointing,
        attention=Attention.SDPA,
        stack=Stack.ACCELERATE,
        seq_len=32,
    )
    return tracer.trace(variant, 1)


DEPTHS: dict[str, list[dict[str, Any]]] = {
    "meta-llama/Llama-3.1-8B": [{"num_hidden_layers": depth} for depth in (8, 32, 96)],
    "google/gemma-2-2b": [{"num_hidden_layers": depth, "layer_types": None} for depth in (12, 26, 60)],
    "google-t5/t5-small": [{"num_layers": depth, "num_decoder_layers": depth + 4} for depth in (8, 24)],
}
KEPT = [("meta-llama/Llama-3.1-8B", Checkpointing.FULL)]


@pytest.mark.parametrize(
    ("model_id", "checkpointing"), sample(product(DEPTHS, [Checkpointing.NONE, Checkpointing.FULL]), kept=KEPT)
)
def test_depth_adds_no_operators_to_run(
    model_id: str, checkpointing: Checkpointing, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    dispatch = Recorder.__torch_dispatch__

    def counting(self: Recorder, *args: Any, **kwargs: Any) -> Any:
        counts[-1] += 1
        return dispatch(self, *args, **kwargs)

    monkeypatch.setattr(Recorder, "__torch_dispatch__", counting)
    traces = []
    for changes in DEPTHS[model_id]:
        counts.append(0)
        traces.append(traced(model_id, changes, checkpointing))
    assert counts[0] > 0
    assert len(set(counts)) == 1
    launched = [int((trace.kind == Kind.OPERATOR).sum()) for trace in traces]
    assert launched == sorted(set(launched)), "while the traces themselves grow"
