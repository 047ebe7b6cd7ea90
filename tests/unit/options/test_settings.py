"""`--set`: keys, values, and what they change about the device and its allocator."""

from dataclasses import replace

import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.memory.allocator.settings import AllocatorSettings
from gpu_plan.planner.memory.allocator.words import allocator_settings, allocator_variable
from gpu_plan.planner.options.checks import _check_attention_kernel, _check_network
from gpu_plan.planner.options.cluster import find_cluster
from gpu_plan.planner.options.settings import SETTINGS, parse_settings, settings_table
from gpu_plan.planner.options.training.reading import read_given
from gpu_plan.planner.search.setting_notes import setting_notes
from gpu_plan.planner.units import GIB, MIB
from gpu_plan.planner.workload.training import Attention, Workload

H100 = parse_cluster("8xH100")


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("memory.reserve=2GiB", str(2 * GIB)),
        ("memory.reserve=1GB", str(10**9)),
        ("alloc.expandable_segments=True", "true"),
        ("alloc.max_split_size_mb=128", "128"),
        ("alloc.roundup_power2_divisions=4", "4"),
        ("alloc.garbage_collection_threshold=0.8", "0.8"),
        ("dtype.reduce=FLOAT32", "float32"),
        ("ddp.gradient_as_bucket_view=true", "true"),
        ("compile.backend=AOT_EAGER", "aot_eager"),
        ("zero.nvme_path= /Local nvme/A ", "/Local nvme/A"),
        ("eval.batch=8", "8"),
    ],
)
def test_values_are_kept_in_one_form(word: str, kept: str) -> None:
    assert parse_settings([word]) == ((word.partition("=")[0], kept),)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("memory.reserve=much", "use a size such as 2GiB"),
        ("memory.reserve=-1GiB", "use a size such as 2GiB"),
        ("alloc.expandable_segments=1", "use true or false"),
        ("alloc.max_split_size_mb=19", "whole MiB from 20 on"),
        ("alloc.max_split_size_mb=nan", "whole MiB from 20 on"),
        ("alloc.roundup_power2_divisions=3", "0 or a power of two"),
        ("alloc.garbage_collection_threshold=1", "below 1"),
        ("dtype.reduce=fp8", "use float32 or bfloat16"),
        ("zero.optimizer_buffer_count=3", "at least 4"),
        ("zero.nvme_path=", "name a folder"),
        ("alloc.expandable_segment=true", "alloc.expandable_segments"),
        ("memory.reserv=2GiB", "memory.reserve"),
    ],
)
def test_what_makes_no_sense_is_one_line(word: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_settings([word])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("strategy", "setting"), [("fsdp", "ddp.gradient_as_bucket_view=true"), ("zero2", "dtype.reduce=float32")]
)
def test_a_setting_of_another_strategy_is_a_contradiction(strategy: str, setting: str) -> None:
    with pytest.raises(UsageError, match=f"not {strategy}"):
        read_given({"strategy": strategy}, [setting])


def test_the_allocator_takes_what_is_set() -> None:
    words = ["alloc.expandable_segments=true", "alloc.max_split_size_mb=64", "alloc.roundup_power2_divisions=8"]
    settings = dict(parse_settings([*words, "alloc.garbage_collection_threshold=0.5", "memory.reserve=1GiB"]))
    assert allocator_settings(settings) == AllocatorSettings(
        expandable_segments=True,
        max_split_size=64 * MIB,
        roundup_power2_divisions=8,
        garbage_collection_threshold=0.5,
    )
    assert allocator_variable(settings) == (
        "expandable_segments:True,garbage_collection_threshold:0.5,max_split_size_mb:64,roundup_power2_divisions:8"
    )
    assert allocator_settings({}) == AllocatorSettings()
    assert allocator_variable({}) == ""


def test_what_was_set_is_told_as_an_assumption() -> None:
    words = ["memory.reserve=2GiB", "alloc.garbage_collection_threshold=0.5"]
    workload = Workload(settings=parse_settings(words))
    texts = [note.text for note in setting_notes(workload, H100)]
    assert texts[0] == "memory.reserve: 2.00 of each device's 79.10 GiB are kept free for others"
    assert texts[1] == "the job runs with PYTORCH_ALLOC_CONF=garbage_collection_threshold:0.5"
    assert "changes nothing here" in texts[2]
    assert len(texts) == 3
    assert setting_notes(Workload(), H100) == ()


def test_settings_of_the_speed_are_told_where_no_figure_shows_them() -> None:
    """The step of a small model waits for its launches, whatever its kernels."""
    workload = Workload(settings=parse_settings(["gpu.power_limit=350", "attention.kernel=flash3"]))
    assert [note.text for note in setting_notes(workload, H100)] == [
        "gpu.power_limit: products are timed at 350 of the 700 W of each H100",
        "attention.kernel: fused attention is timed as FlashAttention-3",
    ]


def test_what_joins_nodes_is_said_in_words_and_in_the_cluster() -> None:
    assert find_cluster("2x8xH100", ("gpu.network=roce",)).gpu.network == "roce"
    assert find_cluster("2x8xH100").gpu.network is None
    workload = Workload(settings=parse_settings(["gpu.network=roce"]))
    told = "gpu.network: what nodes send each other is timed as over roce, by published tables"
    assert [note.text for note in setting_notes(workload, parse_cluster("2x8xH100"))] == [told]
    assert [note.text for note in setting_notes(workload, H100)] == [f"{told}; here is one node"]
    with pytest.raises(UsageError, match="use efa or ethernet"):
        parse_settings(["gpu.network=token-ring"])
    with pytest.raises(UsageError, match="--gpus cpu has none"):
        _check_network(workload, parse_cluster("cpu"))


def test_a_generation_of_fused_kernels_says_nothing_where_none_runs() -> None:
    fused = Workload(settings=parse_settings(["attention.kernel=flash3"]))
    _check_attention_kernel(fused, H100)
    with pytest.raises(UsageError, match="--attention eager runs none of it"):
        _check_attention_kernel(replace(fused, attention=Attention.EAGER), H100)
    with pytest.raises(UsageError, match="--gpus cpu has none"):
        _check_attention_kernel(fused, parse_cluster("cpu"))


def test_the_table_names_every_key() -> None:
    table = settings_table()
    assert [line.split("`")[1] for line in table.splitlines()[2:]] == list(SETTINGS)


@pytest.mark.parametrize(("word", "kept"), [("0.25", "0.25"), ("Longest", "longest"), ("0", "none"), ("none", "none")])
def test_padding_is_a_word_or_a_share(word, kept):
    assert parse_settings([f"data.padding={word}"]) == (("data.padding", kept),)


@pytest.mark.parametrize("word", ["1", "-0.1", "some", "", "nan"])
def test_other_paddings_are_refused(word):
    with pytest.raises(UsageError, match="use none, longest, or a share"):
        parse_settings([f"data.padding={word}"])


def test_losses_are_named():
    assert parse_settings(["loss.variant=transformers-4.48"]) == (("loss.variant", "transformers-4.48"),)
    with pytest.raises(UsageError, match=r"use installed or transformers-4\.48 or transformers-4\.45"):
        parse_settings(["loss.variant=transformers-3"])
