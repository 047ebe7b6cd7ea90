"""A GAN: two models and two optimizers that take turns in every iteration; with `apart` as DCGAN's examples do it."""

import sys

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
generator = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 784), nn.Tanh()).to(device)
judge = nn.Sequential(nn.Linear(784, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1)).to(device)
makes = torch.optim.SGD(generator.parameters(), lr=2e-4)
judges = torch.optim.SGD(judge.parameters(), lr=2e-4)
loss_of = nn.BCEWithLogitsLoss()
real = torch.randn(32, 784).to(device)
yes, no = torch.ones(32, 1).to(device), torch.zeros(32, 1).to(device)

for _ in range(3):
    if "apart" in sys.argv:
        judge.zero_grad()
        loss_of(judge(real), yes).backward()
        fake = generator(torch.randn(32, 64).to(device))
        loss_of(judge(fake.detach()), no).backward()
    else:
        fake = generator(torch.randn(32, 64).to(device))
        loss = loss_of(judge(real), yes) + loss_of(judge(fake.detach()), no)
        judges.zero_grad()
        loss.backward()
    judges.step()
    generator.zero_grad()
    loss = loss_of(judge(fake), yes)
    loss.backward()
    makes.step()
    print(f"{loss.item():.3f}")
