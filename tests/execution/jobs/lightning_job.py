"""Lightning, with automatic optimization."""

import argparse

import lightning
import torch
from tiny import Tokens, tiny_llama, write_truth

parser = argparse.ArgumentParser()
parser.add_argument("--devices", type=int, default=1)
parser.add_argument("--accumulation", type=int, default=1)
arguments = parser.parse_args()


class Job(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = tiny_llama()
        self.losses = []

    def training_step(self, batch, index):
        loss = self.model(**batch).loss
        self.losses.append(float(loss.detach()))
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


job = Job()
trainer = lightning.Trainer(
    max_steps=3,
    accelerator="cpu",
    devices=arguments.devices,
    accumulate_grad_batches=arguments.accumulation,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(job, torch.utils.data.DataLoader(Tokens(64), batch_size=4))
write_truth(losses=job.losses, parameters=sum(p.numel() for p in job.parameters()), steps=trainer.global_step)
