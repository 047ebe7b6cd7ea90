"""What stands without a step, laid out once for every way to checkpoint it."""

from dataclasses import replace
from unittest.mock import patch

import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.workload.training import Checkpointing, Workload

BATCH = Batch(micro_batch=1, accumulation_steps=1)


def evaluator() -> Evaluator:
    cluster, source = parse_cluster("8xH100"), resolve("meta-llama/Llama-3.2-1B")
    provider = TraceProvider(source=source, device=device_kind(cluster.gpu), attention="sdpa", use_cache=False)
    return Evaluator(
        provider=provider, workload=Workload(), cluster=cluster, speed=RooflineModel(), config=source.config
    )


@pytest.mark.parametrize("name", ["ddp", "fsdp", "zero1", "zero3"])
def test_checkpointing_changes_nothing_that_stands(name: str) -> None:
    strategy, shared = STRATEGIES[name], evaluator()
    plain = Family(strategy=strategy, offload=Offload.NONE, checkpointing=Checkpointing.NONE)
    laid_out = []
    real = type(strategy).rank

    def counted(*asked: object) -> object:
        laid_out.append(asked)
        return real(*asked)  # type: ignore[arg-type]

    with patch.object(type(strategy), "rank", counted):
        for checkpointing in (Checkpointing.NONE, Checkpointing.FULL, Checkpointing.SELECTIVE):
            family = replace(plain, checkpointing=checkpointing)
            found = shared.judge_states(family, BATCH)
            assert len(laid_out) == 1
            assert found.family == family
            assert found.profile.peak_allocated_bytes > 0
    for checkpointing in (Checkpointing.FULL, Checkpointing.SELECTIVE):
        family = replace(plain, checkpointing=checkpointing)
        mine, alone = shared.judge_states(family, BATCH), evaluator().judge_states(family, BATCH)
        assert mine.profile.at_peak == alone.profile.at_peak
        assert mine.plan.notes == alone.plan.notes
        assert (mine.host_bytes, mine.expected_bytes) == (alone.host_bytes, alone.expected_bytes)
