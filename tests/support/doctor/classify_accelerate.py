"""Fine-tunes a classifier with augmentation, early stopping and a generated report, in functions and a small class."""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset, random_split

EPOCHS = 4
BATCH = 16


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, images):
        return self.layers(images)


class Patience:
    def __init__(self, limit):
        self.limit = limit
        self.best = None
        self.waited = 0

    def exhausted(self, loss):
        if self.best is None or loss < self.best:
            self.best = loss
            self.waited = 0
        else:
            self.waited += 1
        return self.waited >= self.limit


def loaders(seed):
    images = torch.arange(64 * 400, dtype=torch.float32).reshape(400, 8, 8) / 25600
    labels = torch.arange(400) % 4
    generator = torch.Generator().manual_seed(seed)
    train, held_out = random_split(TensorDataset(images, labels), [350, 50], generator=generator)
    train_loader = DataLoader(train, batch_size=BATCH, shuffle=True, drop_last=True)
    return train_loader, DataLoader(held_out, batch_size=BATCH)


def accuracy(model, loader, accelerator):
    model.eval()
    right = total = 0
    for images, labels in loader:
        with torch.no_grad():
            predictions = model(images).argmax(dim=-1)
        predictions, references = accelerator.gather_for_metrics((predictions, labels))
        right += (predictions == references).sum().item()
        total += len(references)
    model.train()
    return right / total


def train(seed=3):
    accelerator = Accelerator()
    set_seed(seed, device_specific=True)
    train_loader, eval_loader = loaders(seed)
    model = Net()
    model = model.to(accelerator.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = OneCycleLR(optimizer, max_lr=0.1, epochs=EPOCHS, steps_per_epoch=len(train_loader))
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, scheduler
    )
    patience = Patience(20)
    for epoch in range(EPOCHS):
        for images, labels in train_loader:
            images = images + 0.01 * torch.randn_like(images)
            optimizer.zero_grad()
            logits = model(images)
            loss = F.cross_entropy(logits, labels)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            if patience.exhausted(loss.item()):
                accelerator.set_trigger()
            if accelerator.check_trigger():
                break
        score = accuracy(model, eval_loader, accelerator)
        if accelerator.is_main_process:
            print(f"epoch {epoch}: {score:.3f}")
    accelerator.wait_for_everyone()
    accelerator.save_model(model, "classifier")


if __name__ == "__main__":
    train()
