"""What else could be done, and what a whole job takes, as every report tells it."""

from dataclasses import replace

import pytest

from gpu_plan.planner.plan.document import DevicePrice, JobFigures, SearchFacts
from gpu_plan.reports.plan import words
from gpu_plan.reports.plan.markdown import render_markdown
from gpu_plan.reports.plan.terminal import render_terminal
from tests.support.plan_example import llama_on_8xh100, nothing_fits, other_way

GIB = 1024**3


def test_beside_a_plan_it_says_how_fast_and_stands_behind_the_reason() -> None:
    document = llama_on_8xh100()
    best = document.plans[0].speed
    assert best is not None
    assert best.tokens_per_second_per_gpu is not None
    same = other_way("--grad-accum 8", tokens_per_second=1.5 * 8 * best.tokens_per_second_per_gpu)
    facts = SearchFacts(kinds=2, candidates=9, untraced_alternatives=("--fused-loss",))
    document = replace(document, alternatives=(same,), search=facts)
    assert "1.50 times the speed" in words.alternative_rows(document)[0][1]
    text = render_terminal(document, width=200)
    assert "not evaluated, takes a trace of its own: --fused-loss (--alternatives does)" in text
    assert text.index("Next best") < text.index("What else you could do") < text.index("Does not fit")
    assert "--grad-accum 8: FSDP2" in render_markdown(document)


def test_what_is_the_most_that_a_speed_can_be_is_told_so() -> None:
    document = llama_on_8xh100()
    served = replace(other_way("--server vllm"), tokens_per_second=4000.0, at_most=True)
    figures = words.alternative_rows(replace(document, alternatives=(served,)))[0][1]
    assert ", at most 4,000 tokens/s in all, at most " in figures


def test_where_nothing_fits_it_stands_first() -> None:
    document = replace(nothing_fits(), alternatives=(other_way("--peft lora", usd_per_hour=0.0042),))
    text = render_terminal(document, width=200)
    assert text.index("Nearest change") < text.index("What else you could do") < text.index("Does not fit")
    assert "times the speed" not in text
    assert "$0.0042 an hour" in text
    assert "e-" not in words.alternative_rows(document)[0][1]


@pytest.mark.parametrize(("peft", "what"), [("none", "weights"), ("lora", "adapters")])
def test_a_whole_job_tells_what_is_saved(peft: str, what: str) -> None:
    document = llama_on_8xh100()
    job = JobFigures(
        tokens=15 * 10**12,
        hours=69_918.1,
        gpu_hours=559_345.0,
        usd=1_224_965.6,
        weights_bytes=30 * GIB,
        checkpoint_bytes=90 * GIB,
    )
    price = DevicePrice(usd_per_hour=2.19, provider="--price", date="given", source="--price")
    workload = {**document.workload, "peft": peft}
    evaluated = words.job_figure_words(replace(document, whole_job=replace(job, evaluation_hours=1.5)))
    assert evaluated[-1] == "1.5 hours more ($26.28) for evaluations"
    failing = replace(job, overhead_hours=2.0, interruptions=3.0, checkpoint_every_seconds=60.0)
    lost = words.job_figure_words(replace(document, whole_job=failing))
    assert "2.0 hours more ($35.04) for a checkpoint every 60.0 s and 3 failures" in lost[-1]
    unpriced = words.job_figure_words(replace(document, whole_job=replace(failing, usd=None)))
    assert "2.0 hours more for a checkpoint" in unpriced[-1]
    told = words.job_figure_words(replace(document, whole_job=job, prices=(price,), workload=workload))
    assert told[:3] == [
        "15.0T tokens take 69,918 hours (8.0 years)",
        "559,345 GPU-hours",
        "$1,224,966 ($2.19 an hour and GPU, --price, given)",
    ]
    assert told[3] == f"{what} saved take 30.0 GiB, a checkpoint to go on from 90.0 GiB"
