"""A diffusion transformer of diffusers under Accelerate: pictures encoded by a frozen VAE, noise predicted."""

import torch
from accelerate import Accelerator
from diffusers import AutoencoderKL, DDPMScheduler, DiTTransformer2DModel
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.manual_seed(0)
    accelerator = Accelerator()
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(32, 32),
        latent_channels=4,
    )
    model = DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=32,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        sample_size=16,
        patch_size=2,
        norm_num_groups=4,
        num_embeds_ada_norm=10,
    )
    vae.requires_grad_(False)
    vae.to(accelerator.device)
    scheduler = DDPMScheduler()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = TensorDataset(torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,)))
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=4))
    model.train()
    for pictures, classes in loader:
        with torch.no_grad():
            latents = vae.encode(pictures).latent_dist.sample() * vae.config.scaling_factor
        noise = torch.randn_like(latents)
        steps = torch.randint(0, scheduler.config.num_train_timesteps, (len(latents),), device=latents.device)
        noisy = scheduler.add_noise(latents, noise, steps)
        predicted = model(noisy, timestep=steps, class_labels=classes).sample
        loss = F.mse_loss(predicted, noise)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
