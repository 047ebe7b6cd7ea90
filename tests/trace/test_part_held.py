"""A rank's part of a training step that is held gives what one built anew gives, and leaves no group behind."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch.distributed as dist

import gpu_plan.planner.trace.session as sessions
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.session import TracingSession
from gpu_plan.planner.workload.training import Checkpointing
from tests.support.same_trace import assert_same_trace
from tests.trace.test_fold_ranges import ARCHITECTURES, variant
from tests.trace.test_recorded import LONG_ROPE

WHOLE = variant(64)
SPREAD = replace(WHOLE, tensor_parallel=2)
AGAIN = replace(SPREAD, checkpointing=Checkpointing.FULL)
EXPERTS = replace(WHOLE, expert_parallel=2)
ASKED = [(SPREAD, 2), (SPREAD, 1), (AGAIN, 2), (replace(AGAIN, checkpoint_every=2), 4), (EXPERTS, 2), (WHOLE, 2)]
ASKED += [(replace(EXPERTS, checkpointing=Checkpointing.FULL), 2), (SPREAD, 300)]


def session_of(folder: Path, **options: object) -> TracingSession:
    config = ARCHITECTURES["mixtral"].config(**options)
    (folder / "config.json").write_text(json.dumps(config))
    return TracingSession(resolve(str(folder)), device_kind(parse_cluster("2xH100").gpu), "sdpa")


@pytest.mark.parametrize("rope", [None, LONG_ROPE])
def test_a_held_part_gives_what_one_built_anew_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rope: object
) -> None:
    options = {} if rope is None else {"rope_parameters": rope, "max_position_embeddings": 2048, "head_dim": 16}
    anew, held = session_of(tmp_path, **options), session_of(tmp_path, **options)
    expected = [anew.trace(*asked) for asked in ASKED]
    built: list[object] = []
    take = sessions.take_part
    monkeypatch.setattr(sessions, "take_part", lambda model, asked: built.append(asked) or take(model, asked))
    with held.held():
        for asked, trace in zip(ASKED, expected, strict=True):
            assert_same_trace(held.trace(*asked), trace)
    assert built == [SPREAD, EXPERTS, replace(EXPERTS, checkpointing=Checkpointing.FULL), SPREAD]
    assert not dist.is_initialized()


def test_a_part_that_failed_is_not_held(tmp_path: Path) -> None:
    session = session_of(tmp_path)
    with session.held():
        with pytest.raises(CannotSplitError):
            session.trace(replace(WHOLE, tensor_parallel=7), 2)
        assert session._held_part is None
        session.trace(SPREAD, 2)
    assert not dist.is_initialized()
