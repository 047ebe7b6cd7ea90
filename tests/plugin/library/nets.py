"""A small library under test."""

import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, width=1024, depth=4):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, hidden):
        for layer in self.layers:
            hidden = torch.relu(layer(hidden))
        return hidden


def train(model, steps=2, rows=2048, width=1024):
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        model(torch.randn(rows, width)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
