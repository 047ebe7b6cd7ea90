"""Steps, rounds of several optimizers, and the summary that covers steps which are no longer kept."""

import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.executor.records.rank import FIRST_STEPS, LAST_STEPS, StepRecord, StepSummary
from gpu_plan.executor.runner.figures.ledger import Ledger, Row
from gpu_plan.executor.runner.figures.rounds import Rounds
from gpu_plan.planner.plan.codec import decode


class Optimizer:
    """Anything that can be told apart."""


def filled(count):
    ledger = Ledger()
    for number in range(count):
        ledger.append(
            Row(step=0, seconds=float(number % 7 + 1), micro_batches=2, samples=4, tokens=8, loss=1.0 / (number + 1))
        )
    return ledger


def test_a_row_is_a_step_record_and_the_summary_a_step_summary():
    ledger = filled(3)
    row = decode(StepRecord, json.loads(ledger.last.text()), "row")
    assert (row.step, row.micro_batches, row.samples, row.tokens) == (3, 2, 4, 8)
    summary = decode(StepSummary, json.loads(json.dumps(ledger.summary())), "summary")
    assert (summary.steps, summary.tokens, summary.samples, summary.last_loss) == (3, 24, 12, 1 / 3)


@given(st.integers(1, 700))
def test_summary_covers_all_steps_and_leaves_the_first_time_out(count):
    ledger = filled(count)
    summary = ledger.summary()
    times = [float(number % 7 + 1) for number in range(count)][1:]
    assert summary["steps"] == count
    assert summary["tokens"] == 8 * count
    # The latest row may still change: its time joins the median when the next one begins.
    settled = times[:-1] or times
    assert summary["seconds_median"] == (statistics.median(settled) if settled else None)
    assert summary["seconds_max"] == (max(times) if times else None)
    kept = [row.step for row in ledger.rows()]
    wanted = list(range(1, count + 1))
    assert kept == (wanted if count <= FIRST_STEPS + LAST_STEPS else wanted[:FIRST_STEPS] + wanted[-LAST_STEPS:])


def test_a_resumed_attempt_goes_on_counting():
    ledger = Ledger()
    ledger.offset = 40
    assert ledger.append(Row(step=0)).step == 41
    assert ledger.summary()["steps"] == 1


def test_text_follows_a_loss_that_arrives_late_and_is_json_without_a_number():
    row = filled(1).last
    row.text()
    row.set_loss(0.25)
    assert json.loads(row.text())["loss"] == 0.25
    row.set_loss(float("nan"))
    assert json.loads(row.text())["loss"] is None


def test_one_optimizer_makes_a_step_each_time():
    rounds, optimizer = Rounds(), Optimizer()
    assert [rounds.stepped(optimizer) for _ in range(3)] == [True, True, True]


def test_two_optimizers_of_a_round_make_one_step():
    rounds, one, other = Rounds(), Optimizer(), Optimizer()
    assert [rounds.stepped(each) for each in (one, other, one, other)] == [True, False, True, False]
    assert rounds.steps == 2


def test_a_generator_that_steps_every_fifth_time_adds_no_steps():
    rounds, critic, generator = Rounds(), Optimizer(), Optimizer()
    for number in range(20):
        rounds.stepped(critic)
        if number % 5 == 4:
            assert not rounds.stepped(generator)
    assert rounds.steps == 20


def test_an_optimizer_that_replaces_another_goes_on_counting():
    rounds, optimizer = Rounds(), Optimizer()
    for _ in range(5):
        rounds.stepped(optimizer)
    del optimizer
    other = Optimizer()
    assert [rounds.stepped(other) for _ in range(2)] == [True, True]
    assert rounds.steps == 7


@pytest.mark.parametrize("amount", [1, 3])
def test_a_further_optimizer_of_the_round_adds_its_figures(amount):
    row = Row(step=1, seconds=1.0, micro_batches=1, samples=2, loss=0.5, resident_bytes=10, phases={"forward": 10})
    for _ in range(amount):
        row.add(
            Row(step=0, seconds=0.5, micro_batches=1, samples=2, loss=0.25, resident_bytes=30, phases={"forward": 7})
        )
    assert (row.seconds, row.micro_batches, row.samples) == (1 + amount / 2, 1 + amount, 2 + 2 * amount)
    assert (row.loss, row.resident_bytes, row.phases) == (0.5 + amount / 4, 30, {"forward": 10})


def test_a_loss_that_is_no_finite_number_is_kept_by_name_and_counted_beyond_what_is_kept():
    ledger = Ledger()
    for number in range(FIRST_STEPS + LAST_STEPS + 50):
        row = ledger.append(Row(step=0, seconds=1.0))
        row.set_loss(float("nan") if number in (5, 40) else float("-inf") if number == 41 else 1.0)
    rows = {row.step: row for row in ledger.rows()}
    assert (rows[6].loss, rows[6].not_finite) == (None, "nan")
    assert json.loads(rows[6].text())["not_finite"] == "nan"
    assert 41 not in rows, "no longer kept"
    summary = decode(StepSummary, json.loads(json.dumps(ledger.summary())), "summary")
    assert (summary.not_finite_steps, summary.first_not_finite) == (3, 6)
    assert (summary.last_loss, summary.last_not_finite, summary.shown_loss) == (1.0, None, 1.0)
    ledger.append(Row(step=0)).set_loss(float("inf"))
    summary = decode(StepSummary, json.loads(json.dumps(ledger.summary())), "summary")
    assert (summary.last_loss, summary.last_not_finite, summary.shown_loss) == (None, "inf", float("inf"))


def test_a_further_loss_does_not_make_a_step_finite_again():
    """Several optimizers share a row, and a loss arrives for each."""
    ledger = Ledger()
    row = ledger.append(Row(step=0))
    row.set_loss(float("nan"))
    row.set_loss(1.0)
    assert (row.loss, row.not_finite) == (None, "nan")
    assert ledger.summary()["not_finite_steps"] == 1
