"""LoRA of a text-to-image UNet: diffusers' UNet2DConditionModel frozen, peft's adapters trained."""

import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DConditionModel
from peft import LoraConfig
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.manual_seed(0)
    accelerator = Accelerator()
    model = UNet2DConditionModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(32, 64),
        norm_num_groups=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=8,
    )
    model.requires_grad_(False)
    model.add_adapter(
        LoraConfig(r=4, lora_alpha=4, init_lora_weights="gaussian", target_modules=["to_k", "to_q", "to_v", "to_out.0"])
    )
    trained = [p for p in model.parameters() if p.requires_grad]
    scheduler = DDPMScheduler()
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    data = TensorDataset(torch.randn(16, 4, 16, 16), torch.randn(16, 7, 32))
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=4))
    model.train()
    for latents, hidden in loader:
        noise = torch.randn_like(latents)
        steps = torch.randint(0, scheduler.config.num_train_timesteps, (len(latents),), device=latents.device)
        noisy = scheduler.add_noise(latents, noise, steps)
        predicted = model(noisy, steps, hidden, return_dict=False)[0]
        loss = F.mse_loss(predicted.float(), noise.float())
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
