"""Unconditional diffusion: diffusers' UNet2DModel predicts the noise, as examples/unconditional_image_generation."""

import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DModel
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.manual_seed(0)
    accelerator = Accelerator()
    model = UNet2DModel(
        sample_size=32,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(32, 64),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    scheduler = DDPMScheduler()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = TensorDataset(torch.randn(16, 3, 32, 32))
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=4))
    model.train()
    for (clean,) in loader:
        noise = torch.randn_like(clean)
        steps = torch.randint(0, scheduler.config.num_train_timesteps, (len(clean),), device=clean.device)
        noisy = scheduler.add_noise(clean, noise, steps)
        predicted = model(noisy, steps).sample
        loss = F.mse_loss(predicted.float(), noise.float())
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
