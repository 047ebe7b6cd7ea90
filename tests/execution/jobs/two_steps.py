"""A plain torch loop of one process whose batch and accumulation are its own, whatever a plan says."""

import torch
from torch.utils.data import DataLoader

STEPS = 2
torch.manual_seed(0)
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
for number, batch in enumerate(DataLoader(data, batch_size=4)):
    (model(batch).pow(2).mean() / STEPS).backward()
    if (number + 1) % STEPS == 0:
        optimizer.step()
        optimizer.zero_grad()
