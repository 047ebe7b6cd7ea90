"""Things that a test might train, each of which runs really on a CPU as well as in a block."""

import copy

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, width=192, checkpointed=False):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.checkpointed = checkpointed
        self.register_buffer("scale", torch.ones(width))

    def inner(self, hidden):
        return self.down(nn.functional.gelu(self.up(self.norm(hidden))))

    def forward(self, hidden):
        made = checkpoint(self.inner, hidden, use_reentrant=False) if self.checkpointed else self.inner(hidden)
        return hidden + made * self.scale


def loop(model, optimizer, *, steps=3, accumulate=1, clip=None, zero=True):
    for _ in range(steps):
        for _ in range(accumulate):
            loss = model(torch.randn(48, 192)).pow(2).mean()
            loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip, foreach=True)
        optimizer.step()
        if zero:
            optimizer.zero_grad()


def adamw():
    model = Net()
    loop(model, torch.optim.AdamW(model.parameters(), foreach=True), clip=1.0)


def adamw_one_by_one():
    model = Net()
    loop(model, torch.optim.AdamW(model.parameters(), foreach=False))


def accumulation():
    model = Net()
    loop(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True), accumulate=3)


def gradients_kept():
    model = Net()
    loop(model, torch.optim.RMSprop(model.parameters(), foreach=True), zero=False)


def checkpointing():
    model = Net(checkpointed=True)
    loop(model, torch.optim.SGD(model.parameters(), lr=0.1, foreach=True))


def retained_graph():
    """What a list of losses keeps of every step."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
    losses = []
    for _ in range(3):
        loss = model(torch.randn(48, 192)).pow(2).mean()
        loss.backward(retain_graph=True)
        losses.append(loss)
        optimizer.step()
        optimizer.zero_grad()


def average_beside():
    """An exponential average of the weights, and an evaluation of it."""
    model = Net()
    average = copy.deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for _ in range(2):
        loop(model, optimizer, steps=1)
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters(), strict=True):
                kept.mul_(0.9).add_(new, alpha=0.1)
            average(torch.randn(96, 192))


def teacher_and_student():
    teacher, student = Net().eval(), Net()
    optimizer = torch.optim.Adam(student.parameters(), foreach=True)
    for _ in range(2):
        given = torch.randn(48, 192)
        with torch.no_grad():
            wanted = teacher(given)
        nn.functional.mse_loss(student(given), wanted).backward()
        optimizer.step()
        optimizer.zero_grad()


def half_precision_weights():
    model = Net().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
    for _ in range(2):
        model(torch.randn(48, 192, dtype=torch.bfloat16)).float().pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def data_loader():
    data = TensorDataset(torch.randn(64, 192, device="cpu"), torch.randint(0, 192, (64,), device="cpu"))
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
    for given, wanted in DataLoader(data, batch_size=16, shuffle=True):
        nn.functional.cross_entropy(model(given), wanted).backward()
        optimizer.step()
        optimizer.zero_grad()


EXACT = (
    adamw, adamw_one_by_one, accumulation, gradients_kept, checkpointing, retained_graph, average_beside,
    teacher_and_student, half_precision_weights,
)  # fmt: skip
