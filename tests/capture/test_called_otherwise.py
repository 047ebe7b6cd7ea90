"""Models that a script calls in other ways than by their name, and optimizers that clear before the next one steps."""

from pathlib import Path

import pytest

from gpu_plan.planner.capture.parent import capture
from gpu_plan.planner.capture.request import CapturedFacts, CaptureRequest, PlannedDevice
from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category, Kind, StepTrace
from gpu_plan.planner.trace.storage import load

A100 = PlannedDevice(name="A100", total_bytes=80 * 10**9, capability_major=8, sm_count=108)

FORWARD = """
from collections import UserDict
from types import SimpleNamespace
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(model_type="llama")
        self.body, self.head = nn.Embedding(64, 32), nn.Linear(32, 64)

    def forward(self, batch):
        hidden = self.body(batch["input_ids"])
        assert hidden.type() == "torch.cuda.FloatTensor"
        return self.head(hidden / torch.sqrt(torch.tensor(32)).type(hidden.type()))

model, reference = Model().cuda(), Model().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    batch = UserDict(input_ids=torch.randint(0, 64, (6, 16)).cuda())
    with torch.no_grad():
        wanted = reference.forward(batch)
    (model.forward(batch) - wanted).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

CLEARED = """
import torch
from torch.utils.data import DataLoader

first, second = torch.nn.Linear(8, 8).cuda(), torch.nn.Linear(8, 8).cuda()
optimizers = [torch.optim.Adam(model.parameters()) for model in (first, second)]
batches = iter(DataLoader(torch.rand(64, 8), batch_size=4))
for _ in range(2):
    for _ in range(3):
        data = next(batches).cuda()
        (first(data).sum() / 3).backward()
        (second(data).sum() / 3).backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
"""


def _captured(text: str, folder: Path) -> tuple[CapturedFacts, StepTrace]:
    script = folder / "train.py"
    script.write_text(text)
    request = CaptureRequest(script=str(script), working_directory=str(folder), device=A100, seconds=1200.0)
    outcome, content = capture(request)
    assert outcome.facts is not None
    return outcome.facts, load(content)


def test_a_model_whose_forward_is_called_by_itself_is_captured_whole(tmp_path: Path) -> None:
    facts, _ = _captured(FORWARD, tmp_path)
    own = 64 * 32 + 32 * 64 + 64
    assert (facts.class_name, facts.models) == ("Model", 2)
    assert (facts.spec["num_parameters"], facts.spec["trainable_parameters"]) == (2 * own, own)
    assert (facts.spec["kind"], facts.micro_batch, facts.seq_len) == ("module", 6, 16)


@pytest.mark.slow
def test_gradients_that_are_cleared_between_two_optimizers_stand_until_the_step_ends(tmp_path: Path) -> None:
    facts, trace = _captured(CLEARED, tmp_path)
    assert (facts.models, len(facts.optimizers), facts.micro_batch, facts.accumulation_steps) == (2, 2, 4, 3)
    gradients = {int(one) for one in (trace.category == CATEGORY_INDEX[Category.GRADIENTS]).nonzero()[0]}
    freed = {int(one) for one in trace.subject[trace.kind == Kind.FREE]}
    assert len(gradients) == 4
    assert not gradients & freed
