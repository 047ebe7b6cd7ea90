"""Events of a training loop and what the rank's record makes of them."""

import json
import os

import pytest

from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.runner import recorder as record_document
from gpu_plan.executor.runner.figures.batches import Batch
from gpu_plan.executor.runner.options import Options, read_options
from gpu_plan.executor.runner.recorder import Recorder
from gpu_plan.planner.plan.codec import decode


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Peaks:
    """A memory whose peaks are those of a list."""

    device = "cpu"

    def __init__(self, peaks):
        self.peaks = list(peaks)

    def border(self):
        return (self.peaks.pop(0) if self.peaks else 1), None

    def device_used(self):
        return None

    def note(self):
        return None


class Optimizer:
    """Anything that can be told apart."""


class Loop:
    """A loop's events: what the hooks would say."""

    def __init__(self, tmp_path, peaks=()):
        self.clock = Clock()
        self.recorder = Recorder(Options(folder=tmp_path, run_id="run", record_seconds=0.0), self.clock)
        self.recorder.memory = Peaks(peaks)
        self.optimizer = Optimizer()
        self.path = tmp_path / "rank-0.json"

    def micro_batch(self, seconds=1.0, samples=2):
        batch = Batch(shape=(samples, 8), samples=samples, tokens=samples * 8, sequence_length=8)
        self.recorder.forward_begins(batch, training=True)
        self.clock.now += seconds
        self.recorder.backward_begins(None)
        self.recorder.backward_ends()

    def step(self, optimizer=None):
        self.recorder.optimizer_begins()
        self.recorder.optimizer_ends(optimizer or self.optimizer)

    def read(self):
        self.recorder.write()
        return decode(RankRecord, json.loads(self.path.read_text()), "record")


def test_micro_batches_samples_and_time_make_a_step(tmp_path):
    loop = Loop(tmp_path)
    for _ in range(2):
        for _ in range(3):
            loop.micro_batch()
        loop.step()
    steps = loop.read().steps
    assert [(s.step, s.micro_batches, s.samples, s.tokens, s.seconds) for s in steps] == [
        (1, 3, 6, 48, 3.0),
        (2, 3, 6, 48, 3.0),
    ]
    assert loop.read().status == "running"


def test_the_interval_before_a_border_belongs_to_its_phase(tmp_path):
    # The first border only begins the watch; then forward, backward, clipping, optimizer.
    loop = Loop(tmp_path, peaks=[999, 10, 40, 25, 30])
    loop.micro_batch()
    loop.step()
    (step,) = loop.read().steps
    assert step.phases == {"forward": 10, "backward": 40, "optimizer": 30}
    assert step.resident_bytes == 40


def test_a_backward_pass_within_another_is_recomputation(tmp_path):
    loop = Loop(tmp_path)
    loop.recorder.backward_begins(None)
    loop.recorder.backward_begins(None)
    loop.recorder.backward_ends()
    assert loop.recorder.in_backward
    loop.recorder.backward_ends()
    loop.step()
    assert loop.read().steps[0].micro_batches == 1


def test_an_evaluation_between_steps_is_no_training_time(tmp_path):
    loop = Loop(tmp_path)
    loop.micro_batch()
    loop.step()
    loop.recorder.forward_begins(None, training=False)
    loop.clock.now += 50
    loop.micro_batch()
    loop.step()
    assert [s.seconds for s in loop.read().steps] == [1.0, 1.0]


def test_an_inner_optimizer_does_not_count(tmp_path):
    loop = Loop(tmp_path)
    loop.micro_batch()
    loop.recorder.optimizer_begins()
    loop.step(Optimizer())
    loop.recorder.optimizer_ends(loop.optimizer)
    assert len(loop.read().steps) == 1


def test_a_step_that_failed_does_not_swallow_later_ones(tmp_path):
    loop = Loop(tmp_path)
    loop.micro_batch()
    loop.recorder.optimizer_begins()  # raises in the script, which catches it and goes on
    loop.micro_batch()
    loop.step()
    assert len(loop.read().steps) == 1


def test_a_closure_runs_the_passes_within_the_step(tmp_path):
    loop = Loop(tmp_path)
    for _ in range(2):
        loop.recorder.optimizer_begins()
        loop.micro_batch()
        loop.recorder.optimizer_ends(loop.optimizer)
    assert [(s.step, s.micro_batches) for s in loop.read().steps] == [(1, 1), (2, 1)]


def test_a_skipped_step_is_no_step_and_its_samples_are_not_trained_on(tmp_path):
    loop = Loop(tmp_path)
    loop.micro_batch()
    loop.recorder.step_skipped()
    loop.micro_batch()
    loop.step()
    loop.recorder.finish("done", None, 0)
    record = loop.read()
    assert [(s.step, s.micro_batches, s.samples) for s in record.steps] == [(1, 1, 2)]
    assert any("1 optimizer steps were skipped" in note for note in record.notes)


def test_several_optimizers_make_one_step(tmp_path):
    loop, other = Loop(tmp_path), Optimizer()
    for _ in range(2):
        loop.micro_batch()
        loop.step()
        loop.micro_batch()
        loop.step(other)
    assert [(s.step, s.micro_batches) for s in loop.read().steps] == [(1, 2), (2, 2)]


def test_a_hook_that_fails_costs_the_record_not_the_script(tmp_path):
    loop = Loop(tmp_path)
    assert loop.recorder.guard("the weather", lambda: 1 / 0) is None
    loop.recorder.write()
    assert "not observed: the weather (ZeroDivisionError: division by zero)" in loop.read().notes


def test_the_last_record_stays_the_last(tmp_path):
    loop = Loop(tmp_path)
    loop.recorder.finish("done", None, 0)
    loop.recorder.write()
    loop.recorder.finish("interrupted", None, None)
    assert (loop.read().status, loop.read().exit_code) == ("done", 0)


@pytest.mark.parametrize("moment", ["settling the losses", "encoding", "replacing the file"])
def test_a_signal_in_the_midst_of_the_last_record_does_not_lose_it(tmp_path, monkeypatch, moment):
    loop = Loop(tmp_path)
    loop.micro_batch()
    loop.step()
    seen = []

    def killed(real):
        def interrupted(*args, **kwargs):
            if not seen:
                seen.append("inner")
                loop.recorder.finish("interrupted", None, None)
                seen.append(json.loads(loop.path.read_text())["status"])
                raise KeyboardInterrupt  # the process ends here
            return real(*args, **kwargs)

        return interrupted

    owner, name = {
        "settling the losses": (loop.recorder.losses, "settle"),
        "encoding": (record_document, "document"),
        "replacing the file": (os, "replace"),
    }[moment]
    monkeypatch.setattr(owner, name, killed(getattr(owner, name)))
    with pytest.raises(KeyboardInterrupt):
        loop.recorder.finish("peer_failure", None, 1)
    assert seen == ["inner", "peer_failure"]


def test_a_folder_that_is_gone_does_not_stop_the_training(tmp_path):
    loop = Loop(tmp_path / "gone")
    loop.micro_batch()
    loop.step()
    assert loop.recorder.ledger.count == 1
    assert "could not be written" in loop.recorder.file.problem


def test_options_that_make_no_sense_take_their_defaults():
    options = read_options({"GPU_PLAN_RUNNER": '{"expected_parameters": "many", "record_seconds": -1}', "RANK": "x"})
    assert (options.expected_parameters, options.record_seconds, options.rank) == (None, 0.5, 0)
    assert read_options({"GPU_PLAN_RUNNER": "["}).rebatch is False


def test_options_are_read():
    options = read_options(
        {"GPU_PLAN_RUNNER": '{"expected_parameters": 7, "rebatch": true, "checkpointing": "full"}', "RANK": "3"}
    )
    assert (options.expected_parameters, options.rebatch, options.checkpointing, options.rank) == (7, True, "full", 3)
