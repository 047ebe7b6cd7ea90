"""What reports are made of: safe text, copyable commands, groups and bars."""

import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.planner.plan.document import Candidate, StrategyChoice
from gpu_plan.reports.clean import ascii_line, markdown, markdown_code, one_line
from gpu_plan.reports.durations import seconds
from gpu_plan.reports.plan.bars import category_bars, total_bar
from gpu_plan.reports.plan.command import before_launch, command_lines
from gpu_plan.reports.plan.explain import explain_rows, explained_share
from gpu_plan.reports.plan.groups import group_rejected
from gpu_plan.reports.plan.words import memory_rows, miss_words, strategy_words, workload_words
from tests.support.plan_example import EXPLAIN, llama_on_8xh100, memory, nothing_fits


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mred\x1b[0m", r"a\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07x", r"\x1b]0;title\x07x"),
        ("\x1b]8;;http://a\x1b\\link", r"\x1b]8;;http://a\x1b\link"),
        ("\x9b2Jx", r"\x9b2Jx"),
        ("one\ntwo\r\n\tthree\u2028four", "one two three four"),
        ("safe\u202eevil\u2066", r"safe\u202eevil\u2066"),
        ("a\u200bb\x00c\x7fd\x85e\ud800", r"a\u200bb\x00c\x7fd e\ud800"),
        ("models/été-模型", "models/été-模型"),
    ],
)
def test_control_characters_are_written_out(text: str, shown: str) -> None:
    assert one_line(text) == shown


@given(st.text(alphabet=st.characters()))
def test_safe_lines_stay_safe(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert one_line(line) == line
    assert ascii_line(text).isascii()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", "a\\|b"),
        ("`rm`", "\\`rm\\`"),
        ("<script>", "\\<script\\>"),
        ("[x](y)", "\\[x\\](y)"),
        ("a_b*c", "a\\_b\\*c"),
        ("- item", "\\- item"),
        ("1. item", "1\\. item"),
        ("1.5 GiB - 2", "1.5 GiB - 2"),
        ("--checkpointing full", "--checkpointing full"),
        ("---", "\\---"),
        ("a\n# b", "a \\# b"),
        ("===", "\\==="),
    ],
)
def test_markdown_is_escaped(text: str, shown: str) -> None:
    assert markdown(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a.b", "`a.b`"),
        ("a`b", "``a`b``"),
        ("`", "`` ` ``"),
        ("``x", "``` ``x ```"),
        ("a|b\n", "`a|b`"),
        ("", "`  `"),
    ],
)
def test_code_spans_hold_anything(text: str, shown: str) -> None:
    assert markdown_code(text) == shown
    assert markdown_code(text, in_table=True) == shown.replace("|", "\\|")


WORDS = st.sampled_from(
    ["accelerate", "launch", "--flag", "--name", "a/b.py", "'two words'", '"it\'s \\" x"', "a\\ b", "-n", "8", "x" * 50]
)


@given(st.lists(WORDS, min_size=1, max_size=20), st.integers(20, 120))
def test_broken_commands_are_the_same_commands(words: list[str], width: int) -> None:
    command = " ".join(words)
    lines = command_lines(command, width)
    assert all(line.endswith(" \\") for line in lines[:-1])
    joined = "\n".join(lines).replace("\\\n", "")
    assert shlex.split(joined) == shlex.split(command)


def test_an_option_stays_with_its_value() -> None:
    lines = command_lines("accelerate launch --config_file plan.yaml --num_processes 8 train.py", 32)
    assert lines == ["accelerate launch \\", "  --config_file plan.yaml \\", "  --num_processes 8 train.py"]


def _loser(name: str, micro: int, reason: str, parameters: int | None, offload: str = "none") -> Candidate:
    choice = StrategyChoice(name=name, micro_batch_size=micro, precision="bf16-mixed", offload=offload)
    figures = None if parameters is None else memory(parameters=parameters)
    return Candidate(strategy=choice, verdict="no", memory=figures, reason=reason)


def test_alike_reasons_are_drawn_together() -> None:
    groups = group_rejected(
        [
            _loser("zero2", 1, "the stack cannot", None),
            _loser("ddp", 4, "DDP needs 200.0 GiB, has 79.1: activations 150.0", 2 * 10**11),
            _loser("ddp", 1, "DDP needs 97.3 GiB, has 79.1: optimizer state 60.0", 10**11),
            _loser("zero2", 1, "ZeRO-2 needs 90.0 GiB, has 79.1: parameters 30.0", 9 * 10**10),
            _loser("zero2", 1, "ZeRO-2 needs 89.0 GiB, has 79.1: parameters 30.0", 8 * 10**10, "optimizer"),
        ]
    )
    assert [(group.reason.split(":")[0], len(group.members)) for group in groups] == [
        ("ZeRO-2 needs 89.0 GiB, has 79.1", 1),
        ("ZeRO-2 needs 90.0 GiB, has 79.1", 1),
        ("DDP needs 97.3 GiB, has 79.1", 2),
        ("the stack cannot", 1),
    ]
    assert groups[2].aside == "micro batch 1, no checkpointing; +1 similar"
    assert groups[3].aside == ""


SIZE = st.integers(0, 2**38)


@given(SIZE, SIZE, SIZE, st.integers(1, 2**38), st.integers(20, 170))
def test_bars_add_up(parameters: int, activations: int, inputs: int, capacity: int, width: int) -> None:
    figures = memory(parameters=parameters, activations=activations, inputs=inputs, capacity=capacity)
    bars, total = category_bars(figures, width), total_bar(figures, width)
    assert sum(bar.bytes for bar in bars) == figures.device_used_bytes
    assert all(0 <= bar.before < width and bar.before + bar.cells <= width for bar in bars)
    filled = round(figures.device_used_bytes * width / max(capacity, figures.device_used_high_bytes))
    assert sum(bar.cells for bar in bars) == filled
    assert total.certain + total.possible + total.free <= width
    assert (total.certain + total.possible <= total.capacity_cells) or figures.verdict != "fits"


def test_small_parts_are_named_together() -> None:
    rows = memory_rows(memory(parameters=10**10, buffers=8, inputs=16))
    assert rows[0] == ("parameters", "parameters", 10**10)
    assert rows[-1] == ("small", "2 small parts", 24)
    assert memory_rows(memory(parameters=10**10, buffers=8))[-1] == ("buffers", "buffers", 8)


def test_explain_rows_are_sorted_and_counted() -> None:
    best = llama_on_8xh100().plans[0]
    rows = explain_rows(best, limit=2)
    assert [row[0] for row in rows] == ["3.9 GiB", "2.0 GiB"]
    assert rows[1][4] == "32 × [2, 4096, 4096] bfloat16"
    assert best.memory is not None
    assert explained_share(best, limit=2) == (
        EXPLAIN[0].bytes + EXPLAIN[1].bytes,
        best.memory.peak_allocated_bytes,
    )
    assert explained_share(llama_on_8xh100().plans[1]) is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.00123, "1.23 ms"), (0.4123, "412 ms"), (3.2101, "3.21 s"), (95, "95.0 s"), (744, "12.4 min")],
)
def test_seconds(value: float, shown: str) -> None:
    assert seconds(value) == shown


@pytest.mark.parametrize(
    ("strategy", "stack", "wrapper", "says"),
    [
        ("ddp", "plain", None, "wrap its model in DistributedDataParallel, or make its loop Accelerate's"),
        ("zero3", "plain", None, "independent jobs would run; make its loop Accelerate's"),
        ("ddp", "plain", "DDP", None),
        ("ddp", "accelerate", None, None),
    ],
)
def test_what_a_plain_loop_lacks_stands_before_its_command(strategy, stack, wrapper, says):
    document = llama_on_8xh100()
    script = {"wrapper": wrapper} if wrapper else {}
    document = replace(document, workload={**document.workload, "stack": stack, "script": script})
    shown = replace(document.best, strategy=replace(document.best.strategy, name=strategy))
    found = before_launch(document, shown)
    assert found == [] if says is None else says in found[0]
    alone = replace(shown, strategy=replace(shown.strategy, data_parallel=1))
    assert before_launch(document, alone) == []


@pytest.mark.parametrize(
    ("chosen", "command", "says"),
    [
        ({"micro_batch_size": 4}, "accelerate launch train.py", "micro batch 4"),
        (
            {"micro_batch_size": 1, "checkpointing": "full", "checkpoint_every": 2},
            "accelerate launch --use_fsdp train.py",
            "micro batch 1, model.gradient_checkpointing_enable(every_n_layers=2)",
        ),
        (
            {"micro_batch_size": 2, "checkpointing": "full", "gradient_accumulation_steps": 4},
            "accelerate launch --gradient_accumulation_steps 4 --fsdp_activation_checkpointing true train.py",
            "micro batch 2",
        ),
        (
            {"micro_batch_size": 2, "checkpointing": "full", "gradient_accumulation_steps": 4},
            "torchrun train.py",
            "micro batch 2, 4 accumulation steps, model.gradient_checkpointing_enable()",
        ),
        ({"micro_batch_size": 2}, "accelerate launch train.py --per_device_train_batch_size 2", None),
        ({"micro_batch_size": 2, "name": "megatron"}, "torchrun pretrain_gpt.py", None),
        ({"micro_batch_size": 2, "name": "fsdp_tp"}, "plan --plan plan.json --execute train.py", None),
    ],
)
def test_what_no_word_of_the_command_says_is_the_script_s(chosen, command, says):
    """Copied without it, the command runs another plan, or dies of memory."""
    document = llama_on_8xh100()
    strategy = replace(document.best.strategy, **{"gradient_accumulation_steps": 1, **chosen})
    shown = replace(document.best, strategy=strategy, command=command)
    assert before_launch(document, shown) == ([] if says is None else [f"what the script sets itself: {says}"])
    read = replace(document, workload={**document.workload, "script": {"wrapper": "DDP"}})
    assert before_launch(read, shown) == []


def test_what_the_device_does_not_tell_is_told_by_its_reason():
    document = nothing_fits()
    shown = document.rejected[0]
    assert miss_words(document, shown) == "does not fit; it misses by least"
    roomy = replace(shown.memory, capacity_bytes=2 * shown.memory.device_used_high_bytes)
    host = replace(shown, memory=roomy, reason="ZeRO-3 needs 8.0 GiB of host memory on each node, which has 1.0")
    assert miss_words(document, host) == f"does not fit: {host.reason}"


def test_a_library_with_its_own_model_has_its_own_loop():
    document = llama_on_8xh100()
    workload = {**document.workload, "stack": "accelerate"}
    assert "accelerate" in workload_words(replace(document, workload=workload))
    assert "accelerate" not in workload_words(replace(document, workload={**workload, "strategy": "megatron"}))


@pytest.mark.parametrize(
    ("chosen", "title"),
    [
        ({"name": "fsdp_ep", "expert_parallel": 2}, "FSDP2 × EP 2"),
        ({"name": "fsdp_tp", "tensor_parallel": 2, "data_parallel": 4, "expert_parallel": 4}, "FSDP2 × TP 2 EP 4"),
        ({"name": "hsdp_ep", "expert_parallel": 4, "dp_replicate": 2}, "HSDP × EP 4 of 2 replicas"),
    ],
)
def test_a_degree_is_said_once(chosen, title):
    choice = replace(llama_on_8xh100().best.strategy, reshards=True, offload="none", **chosen)
    assert strategy_words(choice) == title
