"""Optimizers that take turns: the recorded iteration against the same one run for real on a CPU."""

from pathlib import Path

import numpy as np
import pytest

from gpu_plan.planner.capture.parent import CaptureError, capture
from gpu_plan.planner.capture.request import CaptureRequest
from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category, Kind
from gpu_plan.planner.trace.storage import load
from tests.capture.test_scripts import CPU
from tests.support.replay_cpu import replayed
from tests.support.script_reference import real_run

SCRIPT = Path(__file__).parent / "scripts" / "gan.py"


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "passes"), [((), 2), (("apart",), 3)], ids=["together", "apart"])
def test_an_iteration_of_several_passes_equals_the_real_one(
    arguments: tuple[str, ...], passes: int, tmp_path: Path
) -> None:
    real = real_run(SCRIPT, arguments, tmp_path, passes)
    request = CaptureRequest(
        script=str(SCRIPT), arguments=arguments, working_directory=str(tmp_path), device=CPU, seconds=1200.0
    )
    outcome, content = capture(request)
    facts = outcome.facts
    assert facts is not None
    assert facts.spec["num_parameters"] == facts.spec["trainable_parameters"] == real["trainable"]
    assert (facts.models, len(facts.optimizers), facts.accumulation_steps, facts.micro_batch) == (2, 2, 1, 32)
    assert any("optimizers take turns" in note for note in facts.notes)
    trace = load(content)
    figures = replayed(trace, facts.micro_batch)
    assert (figures.peak, figures.backward_end) == (real["peak"], real["backward_end"])
    # Each parameter's gradient is ready once, and one storage of it lasts.
    assert sorted(trace.subject[trace.kind == Kind.GRADIENT]) == list(range(len(trace.parameters)))
    gradients = trace.tensor_parameter[trace.category == CATEGORY_INDEX[Category.GRADIENTS]]
    assert sorted(np.unique(gradients)) == sorted(gradients)


NEVER = """
import torch
first, second = torch.nn.Linear(4, 4).cuda(), torch.nn.Linear(4, 4).cuda()
optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (first, second)]
while True:
    first(torch.ones(2, 4).cuda()).sum().backward()
    optimizers[0].step()
"""


@pytest.mark.slow
def test_an_optimizer_whose_turn_never_comes_is_named(tmp_path: Path) -> None:
    path = tmp_path / "never.py"
    path.write_text(NEVER)
    with pytest.raises(CaptureError, match=r"optimizers take turns .*SGD has no gradients after 17 steps"):
        capture(CaptureRequest(script=str(path), working_directory=str(tmp_path), device=CPU, seconds=1200.0))
