"""A small Accelerate loop that saves in one of several ways: `saving.py numbered|main|latest [--die-in-save N]`.

`numbered`: automatic names, one kept, going on from the newest where the environment names none; `main`: each save on
the first rank only; `latest`: always into the same folder.
"""

import os
import signal
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration

way, steps = sys.argv[1], int(sys.argv[2])
die_in_save = int(sys.argv[3]) if len(sys.argv) > 3 else 0
numbered = way == "numbered"
project = ProjectConfiguration(
    project_dir="project", automatic_checkpoint_naming=numbered, total_limit=1 if numbered else None
)
accelerator = Accelerator(project_config=project)
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer = accelerator.prepare(model, optimizer)
if os.environ.get("GPU_PLAN_RESUME_FROM"):
    accelerator.load_state(None if numbered else os.environ["GPU_PLAN_RESUME_FROM"])
saves = 0
original = torch.save


def save(*args, **kwargs):
    if saves == die_in_save:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*args, **kwargs)


torch.save = save
for step in range(steps):
    loss = model(torch.randn(4, 8)).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    saves += 1
    if numbered:
        accelerator.save_state()
    elif way == "latest":
        accelerator.save_state("project/latest")
    elif accelerator.is_main_process:
        accelerator.save_state(f"project/step-{step + 1}")
    print(f"saved {saves}", flush=True)
