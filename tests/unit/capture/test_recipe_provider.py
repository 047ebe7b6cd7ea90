"""What a recipe's generations hold is found out once, whatever the micro batch."""

from dataclasses import replace
from typing import Any

import pytest

from gpu_plan.planner.capture import provider as captures
from gpu_plan.planner.capture.provider import CapturedProvider
from gpu_plan.planner.capture.request import CapturedFacts, CaptureRequest, Outcome, Passage, PlannedDevice, Stood
from gpu_plan.planner.job.recipe.provider import RecipeProvider
from gpu_plan.planner.job.rollouts import RolloutEvaluator
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.static import static_trace
from gpu_plan.planner.trace.storage import dump
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.training import Checkpointing

REQUEST = CaptureRequest(
    script="/nowhere/at/all/grpo.py",
    arguments=("--batch", "1"),
    working_directory="/",
    device=PlannedDevice(name="NVIDIA L4", total_bytes=2**34, capability_major=8),
)
DEVICE = DeviceKind(capability=(8, 9), sm_count=58)
HALF = Regime(weights="bfloat16")
SPEC = ModelSpec(
    id="tiny", class_name="Tiny", config_class=None, model_type=None, kind="module", parameters=(), num_parameters=0,
    trainable_parameters=0, max_positions=None, vocab_size=None, hidden_size=8, has_sequence=False,
)  # fmt: skip
PREFILL = Passage(name="prefill", standing=(Stood(fixed=8, per_row=16),))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[CaptureRequest]:
    """What children were asked for; each is seen to score as many rows as its batch."""
    found: list[CaptureRequest] = []
    trace = dump(static_trace(SPEC, HALF))

    def capture(request: CaptureRequest, *_: Any) -> tuple[Outcome, bytes]:
        found.append(request)
        scored = Passage(name="log-probabilities", rows=int(request.arguments[1]))
        passages = (PREFILL, scored) if request.rolls_out else (scored,)
        return Outcome(stage="captured", facts=CapturedFacts(class_name="Tiny", passages=passages)), trace

    monkeypatch.setattr(captures, "capture", capture)
    return found


def test_other_micro_batches_are_not_asked_for_rollouts_again(asked):
    provider = RecipeProvider(request=replace(REQUEST, regime=HALF), device=DEVICE, use_cache=False)
    seen = [provider._captured(provider.of_batch(provider.request, batch))[0].passages for batch in (1, 2, 4)]
    assert [one.rolls_out for one in asked] == [True, False, False]
    assert [[one.name for one in passages] for passages in seen] == [["prefill", "log-probabilities"]] * 3
    assert [passages[0] for passages in seen] == [PREFILL] * 3
    assert [passages[1].rows for passages in seen] == [1, 2, 4]


def test_other_types_and_other_checkpointing_are_asked_anew(asked):
    provider = RecipeProvider(request=REQUEST, device=DEVICE, use_cache=False)
    for request in (REQUEST, replace(REQUEST, regime=HALF), replace(REQUEST, checkpointing=Checkpointing.NONE)):
        provider._captured(request)
    assert [one.rolls_out for one in asked] == [True] * 3


def test_a_script_of_ones_own_is_always_asked(asked):
    provider = CapturedProvider(request=REQUEST, device=DEVICE, use_cache=False)
    for batch in (1, 2):
        provider._captured(replace(REQUEST, arguments=("--batch", str(batch))))
    assert [one.rolls_out for one in asked] == [True, True]


def test_what_was_completed_is_kept_as_a_whole(asked, tmp_path, monkeypatch):
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "own").mkdir()
    request = replace(REQUEST, script=str(tmp_path / "own" / "grpo.py"))  # its name is what lies beside it
    first = RecipeProvider(request=request, device=DEVICE)
    made = [first._captured(first.of_batch(request, batch))[0] for batch in (1, 2)]
    again = RecipeProvider(request=request, device=DEVICE)
    assert [again._captured(again.of_batch(request, batch))[0] for batch in (2, 1)] == made[::-1]
    assert len(asked) == 2


def test_what_states_alone_hold_is_bounded_without_a_rollout():
    class Told:
        traits = None

    def never(*_: object) -> tuple[Passage, ...]:
        raise AssertionError("a rollout was asked for")

    judge: Any = RolloutEvaluator.__new__(RolloutEvaluator)
    judge.passages = never
    trace = static_trace(SPEC, HALF)
    plan = object()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpu_plan.planner.job.rollouts.Evaluator._plan", lambda *_: plan)
        assert RolloutEvaluator._plan(judge, Told(), Told(), trace) is plan  # type: ignore[arg-type]
