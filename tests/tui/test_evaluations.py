"""Generations and training scripts, evaluated as the explorer does: what the main job says, from traces handed over."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.job.run import run_job
from gpu_plan.planner.options.request import Request
from gpu_plan.tui.engine.evaluations import Evaluations
from gpu_plan.tui.engine.kept.providers import UntracedError
from gpu_plan.tui.screens.leave import rendered
from gpu_plan.tui.state import State

EXAMPLES = Path(__file__).parents[2] / "examples"
TINY = State(model=str(EXAMPLES / "tiny-llama"), gpus="2xT4", given=(("task", "infer"),), no_cache=True)
WAYS = (
    TINY.with_option("batch", "3").trying("strategy", "tp"),
    pytest.param(TINY.trying("strategy", "replicas"), marks=pytest.mark.slow),
    pytest.param(TINY.with_option("new-tokens", "20").trying("strategy", "pp"), marks=pytest.mark.slow),
    pytest.param(TINY.with_option("context", "100").trying("offload", "all"), marks=pytest.mark.slow),
)
PYTHIA = State(model="EleutherAI/pythia-70m", gpus="2xT4", no_cache=True)


def nothing(*_: object) -> None:
    """No note, nothing to check."""


def only(document):
    (candidate,) = (*document.plans, *document.rejected)
    return candidate


def without_limits(candidate):
    """How far it can be taken is found for whole answers alone."""
    return replace(candidate, inference=replace(candidate.inference, max_context=None, max_batch=None, limits={}))


def handed_over(maker: Evaluations, reader: Evaluations, request: Request):
    """The exact picture, from traces that another process made and that came as bytes."""
    with pytest.raises(UntracedError):
        list(reader.of(request).pictures(request))
    parcel = maker.of(request).parcel(request, nothing, nothing)
    reader.take(pickle.loads(pickle.dumps(parcel)))
    *_, exact = reader.of(request).pictures(request)
    return exact


@pytest.mark.parametrize("strategy", ["fsdp", "fsdp_tp"])
def test_a_training_step_that_nobody_traced_is_said_to_be_missing(strategy):
    """The process that draws makes no trace; another one is asked for it."""
    state = State(model=str(EXAMPLES / "tiny-llama"), gpus="2xT4", no_cache=True).trying("strategy", strategy)
    request = state.focus_request
    with pytest.raises(UntracedError):
        list(Evaluations(kept_alone=True).of(request).pictures(request))


def test_what_model_states_decide_is_drawn_before_a_trace_is_made():
    """The model is known, the step with checkpointing is not: its states alone are a lower bound, told as such."""
    state = State(model=str(EXAMPLES / "tiny-llama"), gpus="2xT4", no_cache=True).trying("strategy", "fsdp")
    maker, reader = Evaluations(kept_alone=False), Evaluations(kept_alone=True)
    first, other = (state.trying("checkpointing", kind).focus_request for kind in ("none", "full"))
    handed_over(maker, reader, first)
    pictures = reader.of(other).pictures(other)
    states = next(pictures)
    assert (states.states_only, states.exact) == (True, False)
    with pytest.raises(UntracedError):
        next(pictures)
    reader.take(maker.of(other).parcel(other, nothing, nothing))
    *_, exact = reader.of(other).pictures(other)
    assert not exact.states_only
    least, found = (only(picture.document).memory for picture in (states, exact))
    assert 0 < least.at_peak.parameters <= found.at_peak.parameters
    assert least.peak_allocated_bytes < found.peak_allocated_bytes


def test_every_stage_of_a_pipeline_is_handed_over():
    state = State(model=str(EXAMPLES / "tiny-llama"), gpus="2xT4", no_cache=True)
    state = state.trying("strategy", "pp").trying("micro-batch", "1").trying("grad-accum", "2")
    exact = handed_over(Evaluations(kept_alone=False), Evaluations(kept_alone=True), state.focus_request)
    candidate = only(exact.document)
    assert exact.exact
    assert [stage.rank for stage in candidate.stages] == [0, 1]


@pytest.mark.parametrize("state", WAYS)
def test_pictures_of_generations_are_what_the_command_line_says(state):
    maker, reader = Evaluations(kept_alone=False), Evaluations(kept_alone=True)
    request = state.focus_request
    exact = handed_over(maker, reader, request)
    whole = run_job(request, nothing).document
    candidate = only(exact.document)
    assert without_limits(candidate) == replace(without_limits(only(whole)), command=candidate.command)
    assert exact.document.workload == whole.workload
    drawn = exact.columns
    top = dict(zip(drawn.categories, drawn.levels[drawn.peak], strict=True))
    assert top == candidate.memory.at_peak.items()
    assert drawn.phases[drawn.peak] == candidate.memory.phase_of_peak
    assert {"load", "prefill", "decode"} == set(drawn.phases)
    tensors = reader.of(request).tensors(request)
    assert sum(line.bytes for line in tensors) == candidate.memory.peak_allocated_bytes


def test_every_kind_of_rank_is_drawn_from_traces_handed_over(tmp_path):
    """A vocabulary that the ranks of a group do not divide: each gets another part, and a trace of its own."""
    config = json.loads((EXAMPLES / "tiny-llama" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": config["vocab_size"] - 1}))
    state = State(model=str(tmp_path), gpus="4xH100", given=(("tp", "2"),), no_cache=True)
    reader = Evaluations(kept_alone=True)
    exact = handed_over(Evaluations(kept_alone=False), reader, state.focus_request)
    assert [lane.name for lane in reader.of(state.focus_request).lanes(state.focus_request)][:1] == ["compute"]
    assert len(exact.ranks) > 1
    assert all(rank.name.startswith(("rank ", "each of ranks ")) for rank in exact.ranks)
    assert exact.ranks[0].peak_allocated_bytes == only(exact.document).memory.peak_allocated_bytes
    assert all(sum(size for _, size in rank.at_peak) == rank.peak_allocated_bytes for rank in exact.ranks)


def test_ways_that_cannot_be_are_refused_in_words():
    evaluations = Evaluations(kept_alone=False)
    for state, words in (
        (TINY.with_gpus("1xT4").trying("strategy", "replicas"), "needs more than one GPU"),
        (TINY.with_option("context", "100000"), "longer than the"),
        (TINY.with_gpus("3xT4").trying("strategy", "tp"), "does not divide 3"),
    ):
        request = state.focus_request
        with pytest.raises(UsageError, match=words):
            list(evaluations.of(request).pictures(request))


def test_options_that_leave_no_kind_of_plan_are_refused_in_words():
    """Keys reach states that no command line asks for: NVMe, which FSDP2 has not, beside tensor parallel."""
    state = (
        State(model="meta-llama/Llama-3.1-8B", gpus="2xH100").trying("strategy", "fsdp_tp").trying("offload", "nvme")
    )
    request = state.focus_request
    with pytest.raises(UsageError, match="no kind of plan is left by these options: change one of them"):
        Evaluations(kept_alone=False).of(request).parcel(request, nothing, nothing)


def test_an_answer_that_nobody_waits_for_is_given_up():
    class LeftError(Exception):
        pass

    def left() -> None:
        raise LeftError

    request = TINY.search_request
    with pytest.raises(LeftError):
        Evaluations(kept_alone=False).run(request, nothing, left)


@pytest.mark.slow
def test_pictures_of_a_script_are_what_the_command_line_says():
    maker, reader = Evaluations(kept_alone=False), Evaluations(kept_alone=True)
    script = State(model=str(EXAMPLES / "train.py"), gpus="2xT4", script_words=("--steps", "2"), no_cache=True)
    tried = (
        script.trying("strategy", "ddp"),
        script.trying("strategy", "fsdp").trying("micro-batch", "2").trying("checkpointing", "full"),
    )
    for state in tried:
        request = state.focus_request
        exact = handed_over(maker, reader, request)
        whole = run_job(request, nothing).document
        assert only(exact.document).memory == only(whole).memory
        assert exact.document.workload == whole.workload
        assert exact.document.workload["basis"]["seq_len"] == "captured"


@pytest.mark.slow
def test_the_exported_page_is_the_command_lines():
    for state in (
        TINY.trying("strategy", "replicas"),
        State(model="EleutherAI/pythia-70m", gpus="2xT4", no_cache=True),
    ):
        asked = replace(state.focus_request, timeline=True)
        explored = Evaluations(kept_alone=False).run(asked, nothing, nothing)
        said = run_job(asked, nothing)
        page = rendered(explored.document, "html", explored.timeline)
        assert page == rendered(said.document, "html", said.timeline)
        assert explored.timeline is not None
        assert page != rendered(explored.document, "html")
