"""Trains with torch's own DistributedDataParallel, started by torchrun."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Job:
    def __init__(self, model, loader, optimizer, rank):
        self.rank = rank
        self.loader = loader
        self.optimizer = optimizer
        self.model = DDP(model)
        self.loss = nn.MSELoss()

    def epoch(self, number):
        self.loader.sampler.set_epoch(number)
        for inputs, targets in self.loader:
            self.optimizer.zero_grad()
            loss = self.loss(self.model(inputs), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()

    def save(self, number):
        torch.save({"model": self.model.module.state_dict(), "epoch": number}, "plain.pt")

    def train(self, epochs):
        for number in range(epochs):
            self.epoch(number)
            if self.rank == 0:
                self.save(number)
                print(f"epoch {number} done")


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(256, 16), torch.randn(256, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters())
    Job(model, loader, optimizer, rank).train(3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
