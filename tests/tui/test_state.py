"""The explorer's state: every transition, and that every state is a command line that means the same."""

import shlex
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_plan.planner.options.parser import given_job_words
from gpu_plan.planner.options.words import main_parser
from gpu_plan.planner.plan.figures import StrategyChoice
from gpu_plan.tui.choices import GENERATION, GPUS, SCRIPT, SEARCHED, STEPPED, TRAINING
from gpu_plan.tui.screens.otherwise import with_change
from gpu_plan.tui.state import State

LLAMA = State(model="meta-llama/Llama-3.1-8B", gpus="8xH100")
BEST = StrategyChoice(name="fsdp", data_parallel=8, zero_stage=3, micro_batch_size=4, precision="bf16-mixed")


INFER = State(model="Qwen/Qwen2.5-7B", gpus="4xA10G", given=(("task", "infer"),))
SCRIPT_STATE = State(model="train.py", gpus="2xcpu", script_words=("--steps", "9", "a b"))


def parsed(command):
    words = shlex.split(command)[1:]
    return main_parser().parse_args(words[: words.index("--")] if "--" in words else words)


def test_the_command_of_a_fresh_state_is_the_main_job():
    assert LLAMA.command == "plan meta-llama/Llama-3.1-8B --gpus 8xH100"
    assert LLAMA.search_request.words == ()
    assert not LLAMA.search_request.pinned


def test_a_searched_option_is_tried_in_the_picture_alone():
    state = LLAMA.following_best(BEST).stepped("micro-batch")
    assert state.command == LLAMA.command
    assert not state.following
    assert state.focus_command == (
        "plan meta-llama/Llama-3.1-8B --gpus 8xH100 --strategy fsdp --offload none --checkpointing none"
        " --micro-batch 8 --pin"
    )


def test_any_other_option_changes_the_search_too_and_keeps_following():
    state = LLAMA.following_best(BEST).stepped("seq-len", shown="4096")
    assert state.following
    assert dict(state.given) == {"seq-len": "8192"}
    assert "--seq-len 8192" in state.command
    assert "--seq-len 8192" in state.focus_command


def test_back_to_the_default_is_no_option_at_all():
    there = LLAMA.stepped("attention", shown="sdpa")
    assert dict(there.given) == {"attention": "flash"}
    assert there.stepped("attention", forward=False) == LLAMA


@pytest.mark.parametrize(
    ("gpus", "more", "fewer"),
    [
        ("8xH100", "16xH100", "4xH100"),
        ("1xT4", "2xT4", "1xT4"),
        ("H100", "2xH100", "1xH100"),
        ("2x8xA100-80GB", "4x8xA100-80GB", "8xA100-80GB"),
        ("cpu", "2xcpu", "1xcpu"),
    ],
)
def test_twice_and_half_as_many_gpus(gpus, more, fewer):
    state = State(model="m", gpus=gpus)
    assert state.more_gpus().gpus == more
    assert state.more_gpus(False).gpus == fewer


def test_every_kind_of_gpu_exists_and_keys_go_round():
    from gpu_plan.planner.hardware.cluster import parse_cluster

    state = State(model="m", gpus="4xT4")
    seen = []
    for _ in GPUS:
        assert parse_cluster(state.gpus, ram_bytes=2**36).world_size == 4
        seen.append(state.gpus)
        state = state.other_gpu(GPUS)
    assert state.gpus == "4xT4"
    assert len(set(seen)) == len(GPUS)


def test_adapters_that_are_switched_off_take_their_rank_along():
    state = LLAMA.with_option("peft", "lora").with_option("lora-rank", "64")
    assert "--lora-rank 64" in state.command
    assert state.with_option("peft", None).command == LLAMA.command


def test_with_a_global_batch_the_accumulation_follows():
    state = LLAMA.with_option("global-batch", "64").at(
        StrategyChoice(name="zero2", micro_batch_size=2, gradient_accumulation_steps=4, precision="bf16-mixed")
    )
    assert "grad-accum" not in dict(state.focus_request.words)
    assert dict(state.focus_request.words)["micro-batch"] == "2"


def test_another_model_keeps_what_was_asked_and_nothing_of_the_old_plan():
    state = LLAMA.with_option("seq-len", "8192").at(BEST).with_model("gpt2")
    assert (state.model, state.focus, state.following) == ("gpt2", (), True)
    assert dict(state.given) == {"seq-len": "8192"}


def test_a_name_of_two_hundred_characters_is_quoted_whole():
    name = "a b" * 67
    assert parsed(State(model=name, gpus="8xH100").command).model == name


@pytest.mark.parametrize("menu", [TRAINING, GENERATION, SCRIPT])
def test_every_key_is_its_own(menu):
    keys = [menu.choices[name].key for name in menu.stepped]
    assert all(keys)
    taken = {*keys, *(key.upper() for key in keys)}
    assert len(taken) == 2 * len(keys)
    assert not taken & set("gGnNebdvxqtyhw")


moves = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(STEPPED), st.booleans()),
        st.tuples(st.sampled_from(("gpus", "kind", "best", "loose")), st.booleans()),
    ),
    max_size=25,
)


def moved(state, name, forward):
    if name == "gpus":
        return state.more_gpus(forward)
    if name == "kind":
        return state.other_gpu(GPUS, forward)
    if name == "best":
        return state.following_best(BEST)
    if name == "loose":
        return state.with_setting("alloc.expandable_segments", "true" if forward else None)
    return state.stepped(name, forward, shown={"seq-len": "4096"}.get(name))


@settings(max_examples=40, deadline=None)
@given(moves)
def test_every_state_is_a_command_line_that_gives_the_same_request(steps):
    state = LLAMA
    for name, forward in steps:
        state = moved(state, name, forward)
        for command, request in ((state.command, state.search_request), (state.focus_command, state.focus_request)):
            args = parsed(command)
            assert (args.model, args.gpus, args.pin) == (request.model, request.gpus, request.pinned)
            assert dict(given_job_words(args)) == dict(request.words)
            assert tuple(args.settings) == request.settings
    assert set(dict(state.focus)) <= set(SEARCHED)


@pytest.mark.parametrize(
    ("steps", "spread"),
    [
        ((), ""),
        ((("strategy", "tp"),), "--strategy tp --offload none --tp 2"),
        ((("strategy", "tp"), ("tp", "4")), "--strategy tp --offload none --tp 4"),
        ((("tp", "4"), ("pp", "2")), "--strategy pp --offload none --pp 2"),
        ((("tp", "4"), ("tp", "1")), "--strategy replicas --offload none"),
        ((("offload", "all"),), "--strategy device-map --offload all"),
        ((("offload", "all"), ("strategy", "replicas")), "--strategy replicas --offload none"),
        ((("strategy", "device-map"), ("offload", "all")), "--strategy device-map --offload all"),
    ],
)
def test_what_a_generation_is_spread_by_never_contradicts_itself(steps, spread):
    state = INFER
    for name, value in steps:
        state = state.trying(name, value)
    words = f"{spread} ".lstrip() + "--pin"
    assert state.focus_command == f"plan Qwen/Qwen2.5-7B --gpus 4xA10G --task infer {words}"
    assert state.command == INFER.command


def test_degrees_that_were_given_do_not_stay_behind_another_strategy():
    state = INFER.with_option("tp", "4").trying("strategy", "replicas")
    assert "--tp" not in state.focus_command
    assert "--tp 4" in state.command


def test_one_device_is_no_replicas():
    assert INFER.with_gpus("1xT4").trying("tp", "2").trying("tp", "1").value("strategy") == "single"


def test_a_plan_of_a_generation_is_followed():
    best = StrategyChoice(name="tp", data_parallel=2, tensor_parallel=2, micro_batch_size=1, precision="bf16")
    state = INFER.following_best(best)
    assert dict(state.focus) == {"strategy": "tp", "tp": "2", "offload": "none"}
    assert state.stepped("context", shown="4096").value("context") == "8192"


def test_the_other_task_keeps_what_both_know():
    state = LLAMA.with_option("attention", "flash").with_option("seq-len", "8192").at(BEST)
    infer = state.with_task("infer")
    assert infer.command == f"{LLAMA.command} --task infer --attention flash"
    assert infer.with_task(None).command == f"{LLAMA.command} --attention flash"
    assert infer.with_task("infer") is infer


def test_a_scripts_own_arguments_stand_behind_dashes():
    assert SCRIPT_STATE.command == "plan train.py --gpus 2xcpu -- --steps 9 'a b'"
    tried = SCRIPT_STATE.trying("micro-batch", "8")
    assert tried.focus_command == "plan train.py --gpus 2xcpu --micro-batch 8 --pin -- --steps 9 'a b'"
    assert tried.focus_request.script_words == ("--steps", "9", "a b")
    assert tried.with_script_words(()).focus == ()
    assert SCRIPT_STATE.with_model("gpt2").script_words == ()


def test_a_script_keeps_its_own_values_unless_others_are_given():
    """A default of the menu would be an option that is dropped, and the script's own value again."""
    assert SCRIPT_STATE.stepped("optimizer", shown="sgd").value("optimizer") == "adamw"
    assert all(not choice.default for choice in SCRIPT.choices.values())


infer_moves = st.lists(st.tuples(st.sampled_from(GENERATION.stepped), st.booleans()), max_size=20)


@settings(max_examples=40, deadline=None)
@given(infer_moves)
def test_every_state_of_a_generation_is_a_command_line_that_contradicts_nothing(steps):
    from gpu_plan.planner.options.generation import read_given

    state = INFER
    for name, forward in steps:
        state = state.stepped(name, forward, shown={"context": "4096", "new-tokens": "1"}.get(name))
        words = dict(state.focus_request.words)
        assert dict(given_job_words(parsed(state.focus_command))) == words
        if int(words.get("new-tokens", "1")) < int(words.get("context", "4096")):
            read_given({**words, "attention": words.get("attention", "sdpa")}, ())


def test_settings_of_a_plan_are_those_of_its_picture_alone():
    kept = replace(BEST, checkpointing="full", checkpoint_every=4, reshards=False)
    state = LLAMA.at(kept)
    assert state.command == LLAMA.command
    settings = ("checkpoint.every=4", "fsdp.reshard_after_forward=false")
    assert state.focus_request.settings == settings
    assert " ".join(f"--set {word}" for word in settings) in state.focus_command
    assert state.stepped("micro-batch").focus_request.settings == settings
    assert state.stepped("checkpointing").focus_request.settings == ()
    given = LLAMA.with_setting("checkpoint.every", "2").at(kept)
    assert given.focus_request.settings == ("checkpoint.every=2", "fsdp.reshard_after_forward=false")
    grown = LLAMA.at(replace(BEST, expandable_segments=True))
    assert grown.focus_request.settings == ("alloc.expandable_segments=true",), "its picture is not that of fixed ones"


def test_degrees_of_a_plan_are_options_of_its_picture():
    state = LLAMA.at(replace(BEST, name="fsdp_tp", data_parallel=4, tensor_parallel=2))
    assert dict(state.focus)["tp"] == "2"
    piped = LLAMA.at(replace(BEST, data_parallel=4, pipeline_parallel=2, schedule="1f1b"))
    assert "--pp 2 --schedule 1f1b" in piped.focus_command
    assert "--pp" not in piped.stepped("strategy").focus_command


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("--grad-accum 8", "--grad-accum 8"),
        ("--optimizer adamw-8bit", "--optimizer adamw-8bit"),
        ("--fused-loss", "--fused-loss"),
        ("--set checkpoint.every=1", "--set checkpoint.every=1"),
        ("2x8xH100", "--gpus 2x8xH100"),
    ],
)
def test_what_else_could_be_done_is_a_state(change, words):
    state = with_change(LLAMA.at(BEST), change)
    assert words in state.command
    assert state.following
    assert state.focus == ()


def test_a_change_that_the_explorer_has_no_option_for_is_none():
    assert with_change(LLAMA, "--server vllm") is None
    assert with_change(LLAMA.with_option("strategy", "ddp"), "another --strategy") == LLAMA
