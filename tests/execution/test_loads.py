"""What is put right after a script's own `load_state`, on accelerate's real objects."""

import time

import pytest
import torch
from accelerate import Accelerator
from accelerate.scheduler import AcceleratedScheduler
from accelerate.state import AcceleratorState, PartialState

from gpu_plan.executor.checkpoints.manifest import REPLICATED, Manifest
from gpu_plan.executor.runner.saving.loads import after_load, rescale_schedule

STEPS = 10


def schedule(ranks: int, *, alone: bool = False) -> AcceleratedScheduler:
    """A decay over STEPS optimizer steps, as scripts write it: accelerate advances it once for each rank."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    inner = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: 1 - at / (STEPS * (1 if alone else ranks)))
    optimizer.step()
    return AcceleratedScheduler(inner, optimizer, step_with_optimizer=not alone)


def advance(scheduler: AcceleratedScheduler, ranks: int) -> float:
    """One optimizer step's worth, as AcceleratedScheduler.step takes it on so many ranks."""
    for _ in range(ranks if scheduler.step_with_optimizer else 1):
        scheduler.scheduler.step()
    return scheduler.get_last_lr()[0]


@pytest.mark.parametrize(("before", "now"), [(2, 1), (2, 4), (3, 3)])
def test_a_schedule_goes_on_where_it_was_on_another_number_of_ranks(before: int, now: int) -> None:
    whole = schedule(before)
    rates = [advance(whole, before) for _ in range(STEPS)]
    begun, resumed = schedule(before), schedule(now)
    for _ in range(4):
        advance(begun, before)
    resumed.load_state_dict(begun.state_dict())
    rescale_schedule(resumed, before, now)
    assert [advance(resumed, now) for _ in range(4, STEPS)] == pytest.approx(rates[4:])


def test_a_schedule_that_counts_optimizer_steps_is_left_alone() -> None:
    begun = schedule(2, alone=True)
    advance(begun, 2)
    state = dict(begun.state_dict())
    rescale_schedule(begun, 2, 4)
    assert begun.state_dict() == state


@pytest.fixture
def accelerator():
    AcceleratorState._reset_state(True)
    yield Accelerator(cpu=True, gradient_accumulation_steps=4)
    AcceleratorState._reset_state(True)
    PartialState._reset_state()


def manifest(accumulation: int) -> Manifest:
    return Manifest(
        step=2,
        stack="accelerate",
        layout=REPLICATED,
        strategy="single",
        world_size=1,
        created=time.time(),
        gradient_accumulation_steps=accumulation,
    )


@pytest.mark.parametrize(("counted", "saved", "then"), [(6, 3, 0), (2, 1, 0), (5, 2, 5)])
def test_an_accumulation_begins_afresh_between_steps(accelerator, counted: int, saved: int, then: int) -> None:
    """Two steps of 3 micro batches: 6 % 4 would make the first step under 4 one of 2. Within one, nothing is known."""
    accelerator.step = counted
    after_load(accelerator, manifest(saved))
    assert accelerator.step == then
