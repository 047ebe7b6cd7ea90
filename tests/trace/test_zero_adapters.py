"""What ZeRO-3 keeps gathered around adapters, from traces of a tiny model; real ranks agree (test_distributed_zero)."""

import numpy as np
import pytest

from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.strategy.zero.stage3.storage import GATHERED
from gpu_plan.planner.workload.training import Checkpointing
from tests.support.ranks import zero_cases
from tests.support.ranks.case import RankCase
from tests.support.ranks.zero_replay import streams_of

VOCABULARY = 32768 * 4
"""Bytes of the embedding, and of the head: no other weight is as large."""


def vocabulary_after_forward(stream: RankStream) -> int:
    """Gathered weights of that size that stand when the second iteration's forward is over."""
    second = sorted({int(s) for s in stream.event_segment} - set(stream.step_segments))[-1]
    upto = (stream.event_segment < second) | ((stream.event_segment == second) & ~stream.event_in_backward)
    alive = np.bincount(stream.event_tensor[upto], weights=stream.event_sign[upto], minlength=len(stream.fixed))
    first = stream.trace.num_tensors * stream.num_passes
    ours = (tensor for tensor in np.flatnonzero(alive) if tensor >= first and stream.labels[tensor - first] == GATHERED)
    return sum(int(stream.fixed[tensor]) == VOCABULARY for tensor in ours)


@pytest.mark.parametrize(("checkpointing", "expected"), [(Checkpointing.NONE, 1), (Checkpointing.FULL, 2)])
def test_checkpointing_keeps_a_frozen_embedding_gathered_until_backward_comes_to_it(
    checkpointing: Checkpointing, expected: int
) -> None:
    """The head is used again soon in both; the embedding only where its output requires a gradient."""
    case = RankCase(
        architecture="llama-3", strategy="zero3", settings=zero_cases.PARTED, checkpointing=checkpointing, lora_rank=4
    )
    assert vocabulary_after_forward(streams_of(case, 2)[0]) == expected


def partitions(stream: RankStream, label: str) -> int:
    """Bytes of what the strategy places under that label."""
    first = stream.trace.num_tensors * stream.num_passes
    placed = zip(stream.labels, stream.fixed[first:].tolist(), strict=True)
    return sum(size for said, size in placed if said == label)


def test_adapters_partitions_stay_in_fp32_beside_a_16_bit_base() -> None:
    """stage3.py: _create_fp16_partitions_with_defragmentation keeps their type; gradients are of the engine's."""
    stream = streams_of(zero_cases.ADAPTED[1], 2)[0]
    trained = sum(parameter.numel // 2 for parameter in stream.trace.parameters if parameter.trainable)
    assert partitions(stream, "weight partitions") == 4 * trained
    assert partitions(stream, "gradient partitions") == 2 * trained
