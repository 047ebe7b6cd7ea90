"""Folding under selective checkpointing and under every k-th layer: the folded step equals the full one."""

import json

import pytest

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.catalog_index import load_index
from gpu_plan.planner.model.family import has_sequence
from gpu_plan.planner.trace.inputs.batch import training_batch
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.support.same_trace import assert_same_trace

AUTOCAST = Regime(weights="float32", autocast="bfloat16", outputs_to_fp32=True)
BF16 = Regime(weights="bfloat16")


def _tracer(layers: int, fold: bool) -> Tracer:
    model = build_model(
        json.loads(load_index()["meta-llama/Llama-3.1-8B"].path.read_text()) | {"num_hidden_layers": layers}
    )
    return Tracer(
        model=model,
        make_batch=lambda m, batch, seq: training_batch(m, batch=batch, seq_len=seq),
        profile=CudaProfile(),
        has_sequence=has_sequence(model),
        fold=fold,
    )


def _variant(regime: Regime, mode: Checkpointing, every: int) -> StepVariant:
    return StepVariant(
        regime=regime,
        checkpointing=mode,
        checkpoint_every=every,
        attention=Attention.SDPA,
        stack=Stack.ACCELERATE,
        seq_len=64,
    )


@pytest.mark.parametrize(
    ("regime", "mode", "every", "found"),
    [
        pytest.param(AUTOCAST, Checkpointing.SELECTIVE, 1, [(0, 1, 13)], marks=pytest.mark.slow),
        pytest.param(BF16, Checkpointing.FULL, 2, [(0, 2, 7)], marks=pytest.mark.slow),
        (AUTOCAST, Checkpointing.SELECTIVE, 2, [(0, 2, 7)]),
        pytest.param(AUTOCAST, Checkpointing.FULL, 5, [], marks=pytest.mark.slow),
    ],
)
def test_folded_equals_full(regime: Regime, mode: Checkpointing, every: int, found: list[tuple[int, ...]]) -> None:
    folded, full = _tracer(13, fold=True), _tracer(13, fold=False)
    # Another variant before it: what repeats is looked for again when the distance changes.
    folded.trace(_variant(regime, Checkpointing.NONE, 1), 1)
    variant = _variant(regime, mode, every)
    assert_same_trace(folded.trace(variant, 2), full.trace(variant, 2))
    assert [(fold.start, fold.period, fold.units) for fold in folded.folds()] == found
    assert folded.notes == []
