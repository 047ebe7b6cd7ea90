"""What else a job could be asked for: each way by itself, and those that are gone together; nothing is evaluated."""

from typing import Any

import pytest

from gpu_plan.planner.job.alternatives.ways import Known, Way, shorter, together, ways
from gpu_plan.planner.options.request import Request
from gpu_plan.planner.workload.precisions import Precision
from gpu_plan.planner.workload.training import Workload


def request(*settings: str, model: str = "gpt2", **words: str) -> Request:
    options: dict[str, Any] = dict.fromkeys(("pinned", "explain", "trust_remote_code", "use_cache"), False)
    given = tuple((name.replace("_", "-"), value) for name, value in words.items())
    return Request(model=model, gpus="1xA100", words=given, settings=settings, revision=None, command="plan", **options)


def told(job: Request, precision: str = "bf16-mixed") -> list[str]:
    return [way.words for way in ways(job, Workload(precision=Precision(precision)))]


def test_each_way_by_itself_what_changes_least_first() -> None:
    assert told(request()) == [
        "--optimizer adamw-fused", "--fused-loss", "--optimizer adamw-8bit", "--precision bf16", "--peft lora",
        "--peft qlora",
    ]  # fmt: skip


def test_an_update_that_makes_nothing_beside_it_has_no_leaner_one() -> None:
    assert told(request(optimizer="adamw-fused"))[0] == "--fused-loss"
    assert told(request(optimizer="adamw-forloop"))[0] == "--optimizer adamw-fused"


def test_a_type_that_trains_in_no_pure_form_has_none() -> None:
    """Weights and states in float16 alone lose small updates: no precision of training is that."""
    assert "--precision" not in " ".join(told(request(), "fp16-mixed"))
    assert "--precision" not in " ".join(told(request(), "bf16"))


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ({"peft": "lora"}, ["--fused-loss", "--peft qlora"]),
        ({"peft": "qlora", "fused_loss": "true"}, []),
        ({"task": "infer"}, ["--quantize int8", "--quantize nf4"]),
        ({"task": "infer", "server": "vllm"}, ["--quantize fp8", "--quantize awq-4bit-128"]),
    ],
)
def test_what_is_given_is_no_way(words: dict[str, str], left: list[str]) -> None:
    assert told(request(**words)) == left


def test_a_script_runs_as_it_is_written() -> None:
    assert told(request(model="train.py")) == []


@pytest.mark.parametrize(("padding", "samples"), [("0.5", 2.0), ("0.75", 4.0), ("longest", 1.0)])
def test_padding_gives_way_to_further_samples(padding: str, samples: float) -> None:
    job = request(f"data.padding={padding}", "alloc.expandable_segments=true")
    way = next(way for way in ways(job) if way.packs)
    assert (way.words, way.samples_per_row) == ("--set data.padding=none", samples)
    assert way.asked_of(job).settings == ("alloc.expandable_segments=true", "data.padding=none")


@pytest.mark.parametrize("settings", [(), ("data.padding=none",), ("data.padding=0",)])
def test_without_padding_nothing_is_packed(settings: tuple[str, ...]) -> None:
    assert not any(way.packs for way in ways(request(*settings)))


def test_ways_that_are_gone_together() -> None:
    found = [way.words for way in together(request(), Workload(seq_len=1024, precision=Precision("bf16-mixed")))]
    assert found == [
        "--optimizer adamw-8bit --precision bf16",
        "--optimizer adamw-8bit --precision bf16 --fused-loss",
        "--optimizer adamw-fused --fused-loss",
        "--peft lora --fused-loss",
        "--peft qlora --fused-loss",
        "--peft lora --fused-loss --seq-len 512",
        "--peft qlora --fused-loss --seq-len 512",
    ]
    assert list(together(request(peft="qlora", fused_loss="true"), Workload(seq_len=512))) == []


def test_lengths_are_halved_down_to_what_anybody_trains_on() -> None:
    assert list(shorter(Workload(seq_len=4096))) == [2048, 1024, 512]
    assert list(shorter(Workload(seq_len=700))) == []


def test_a_way_goes_further_than_another() -> None:
    lora, both = Way(options={"peft": "lora"}), Way(options={"peft": "lora", "fused-loss": "true"})
    assert both.has_all_of(lora)
    assert not lora.has_all_of(both)
    assert not both.has_all_of(Way(options={"peft": "qlora"}))
    assert both.asked_of(request(peft="none", rank="8")).words == (
        ("peft", "lora"), ("rank", "8"), ("fused-loss", "true"),
    )  # fmt: skip


def test_a_shorter_sample_alone_makes_no_other_way() -> None:
    whole = Way(options={"peft": "qlora", "fused-loss": "true"})
    short, shorter_still = (whole.and_(Way(options={"seq-len": length})) for length in ("2048", "1024"))
    assert short.only_shortens(whole)
    assert shorter_still.only_shortens(short)
    assert not whole.only_shortens(whole)
    assert not short.only_shortens(Way(options={"peft": "lora", "fused-loss": "true"}))


def test_a_stack_that_holds_less_is_a_way_with_adapters_alone() -> None:
    known = Known(lean_stack="unsloth")
    assert "--stack unsloth" in [way.words for way in ways(request(peft="qlora"), known=known)]
    assert "--peft qlora --stack unsloth" in [way.words for way in ways(request(), known=known)]
    chosen = [way for way in ways(request(peft="qlora", stack="trl"), known=known) if "stack" in way.options]
    assert not chosen, "a stack that was asked for stays"


def test_weights_that_would_be_fp32_are_offered_in_16_bits_first() -> None:
    known = Known(narrow_weights="bf16")
    offered = [way.words for way in ways(request(task="infer"), known=known)]
    assert offered == ["--precision bf16", "--quantize int8", "--quantize nf4"]
    named = [way.words for way in ways(request(task="infer", precision="fp32"), known=known)]
    assert "--precision bf16" not in named, "a type that was asked for stays"


def test_a_library_with_an_update_of_its_own_is_offered_none() -> None:
    offered = [way.words for way in ways(request(), known=Known(updates_itself=True))]
    assert "--optimizer adamw-fused" not in offered
