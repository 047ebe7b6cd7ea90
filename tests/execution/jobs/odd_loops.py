"""Loops that are easily miscounted; the first argument names one."""

import copy
import json
import os
import sys

import torch

torch.manual_seed(0)
kind = sys.argv[1]


def write_truth(**values: object) -> None:
    with open("truth-0.json", "w") as file:
        json.dump(values, file)


def adversarial() -> None:
    """Two models with an optimizer each; the critic steps twice as often."""
    critic, generator = torch.nn.Linear(4, 1), torch.nn.Linear(2, 4)
    optimizers = [torch.optim.Adam(model.parameters()) for model in (critic, generator)]
    for number in range(4):
        optimizers[0].zero_grad()
        (critic(torch.randn(3, 4)).mean() - critic(generator(torch.randn(3, 2)).detach()).mean()).backward()
        optimizers[0].step()
        if number % 2:
            optimizers[1].zero_grad()
            critic(generator(torch.randn(3, 2))).mean().backward()
            optimizers[1].step()
    write_truth(steps=4)


def overflow() -> None:
    """fp16's scaler leaves steps out; the loss is scaled before backward."""
    model, losses = torch.nn.Linear(4, 1), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for number in range(5):
        loss = model(torch.ones(2, 4)).pow(2).mean()
        if number in (1, 3):
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if number not in (1, 3):
            losses.append(float(loss.detach()))
    write_truth(steps=3, losses=losses)


def closure() -> None:
    """LBFGS runs several passes within one step."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    passes = []

    def again():
        passes.append(1)
        optimizer.zero_grad()
        loss = (model(torch.ones(2, 4)) - 1).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(again)
    write_truth(steps=2, passes=len(passes))


def reentrant() -> None:
    """Reentrant checkpoints call backward within backward."""
    from torch.utils.checkpoint import checkpoint

    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers

        def forward(self, x):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=True)
            return x

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.ones(2, 4, requires_grad=True)).sum().backward()
        optimizer.step()
    write_truth(steps=3)


def copies() -> None:
    """The model is evaluated, copied, pickled and loaded again between steps, and another one is trained later."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        with torch.no_grad():
            copy.deepcopy(model)(torch.ones(50, 4))
            model(torch.ones(60, 4))
        torch.save(model, "model.pt")
        torch.load("model.pt", weights_only=False)(torch.ones(70, 4))
    os.unlink("model.pt")
    other = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(other.parameters())
    for _ in range(3):
        other(torch.ones(5, 4)).sum().backward()
        optimizer.step()
    write_truth(steps=6)


{"adversarial": adversarial, "overflow": overflow, "closure": closure, "reentrant": reentrant, "copies": copies}[kind]()
