"""A script that formats its loss before it goes backward."""

import subprocess
import sys

import pytest

SCRIPT = """
import torch

model = torch.nn.Linear(64, 64).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    loss = model(torch.randn(8, 64, device="cuda")).pow(2).mean()
    print(f"step {step}: loss {loss:.3f}, {loss:>10.2e}")
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_formatted_loss_does_not_end_the_capture(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    words = [sys.executable, "-m", "gpu_plan", "train.py", "--gpus", "1xT4", "--pin"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr
    assert "4.16K parameters" in done.stdout
