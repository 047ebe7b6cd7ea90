"""A rank's part that is held gives what one built anew gives; FP8 experts are wrapped once, however many there are."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch.distributed as dist
from transformers.integrations import finegrained_fp8

from gpu_plan.planner.model.quantization import Scheme, parse_quantize
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from tests.support.same_trace import assert_same_trace
from tests.trace.test_generation_folds import PLAIN, session_of

ASKED = [
    replace(PLAIN, tensor_parallel=2),
    replace(PLAIN, tensor_parallel=2, prompt=71, batch=3),
    replace(PLAIN, pipeline_parallel=2, stage=1),
    replace(PLAIN, pipeline_parallel=2, stage=1, batch=4),
    replace(PLAIN, tensor_parallel=2, prompt=71),
    PLAIN,
]


def test_a_held_part_gives_what_one_built_anew_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    anew, held = session_of("llama"), session_of("llama")
    expected = [anew.trace(variant) for variant in ASKED]
    built: list[int] = []
    build = held._built
    monkeypatch.setattr(held, "_built", lambda: built.append(1) or build())
    with held.held():
        for variant, trace in zip(ASKED, expected, strict=True):
            assert_same_trace(held.trace(variant), trace)
    assert len(built) == 3, "once for each run of sizes"
    assert not dist.is_initialized()


def test_a_part_that_failed_is_not_held() -> None:
    session = session_of("llama")
    with session.held():
        with pytest.raises(CannotSplitError):
            session.trace(replace(PLAIN, tensor_parallel=7))
        assert session._held_part is None
        session.trace(ASKED[0])
    assert not dist.is_initialized()


def test_fp8_experts_are_wrapped_once() -> None:
    scheme: Scheme = parse_quantize("fp8")
    for _ in range(3):
        session_of("qwen3-moe", scheme)
        wrapped = finegrained_fp8.FP8Experts.__init__.__wrapped__
        assert not hasattr(wrapped, "__wrapped__")


def test_the_first_recording_of_a_process_is_that_of_any_other() -> None:
    """What torch imports meanwhile would keep frames, and the tensors in them."""
    code = (
        "from tests.support.same_trace import assert_same_trace\n"
        "from tests.trace.test_generation_folds import PLAIN, session_of\n"
        "session = session_of('llama')\n"
        "assert_same_trace(session.trace(PLAIN), session.trace(PLAIN))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
