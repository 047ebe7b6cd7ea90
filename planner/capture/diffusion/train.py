"""A model of diffusers trained to predict what was added to its sample, in the loop of diffusers' own scripts.

diffusers 0.42 examples/text_to_image/train_text_to_image.py and train_text_to_image_lora.py: weights in fp32 that
autocast computes, those under adapters in the type of the computation; the loss in fp32; torch's AdamW.
"""

import argparse
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from gpu_plan.planner.capture.diffusion.inputs import CLASSES, Inputs

_ROWS = 4
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_PROJECTIONS = ["to_k", "to_q", "to_v", "to_out.0"]


class _Samples(Dataset[dict[str, torch.Tensor]]):
    """Equal samples, made as they are asked for."""

    def __init__(self, rows: int, inputs: Inputs) -> None:
        self.rows, self.inputs = rows, inputs

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return dict(self.inputs.stored)


def main() -> None:
    given = _given()
    config = json.loads(Path(given.model, "config.json").read_text())
    inputs = CLASSES[config["_class_name"]](config)
    accelerator = Accelerator(mixed_precision=given.mixed, gradient_accumulation_steps=given.accumulation)
    model = _model(given, config["_class_name"])
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    loader = DataLoader(_Samples(_ROWS * given.batch * given.accumulation, inputs), batch_size=given.batch)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    shared = {name: tensor.to(accelerator.device) for name, tensor in inputs.whole.items()}
    model.train()
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(_loss(model, batch, shared, _DTYPES.get(given.mixed, torch.float32)))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad()


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--mixed", default="no", help="as accelerate names it")
    parser.add_argument("--weights", default="float32", help="torch dtype of frozen weights")
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--lora-rank", type=int, default=0)
    return parser.parse_args()


def _model(given: argparse.Namespace, name: str) -> Any:
    model = getattr(import_module("diffusers"), name).from_pretrained(given.model)
    if given.checkpointing:
        model.enable_gradient_checkpointing()
    if given.lora_rank:
        from peft import LoraConfig

        model.requires_grad_(False)
        model.to(dtype=getattr(torch, given.weights))
        model.add_adapter(LoraConfig(r=given.lora_rank, lora_alpha=given.lora_rank, target_modules=_PROJECTIONS))
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(torch.float32)  # training_utils.py: cast_training_params
    return model


def _loss(
    model: Any, batch: dict[str, torch.Tensor], shared: dict[str, torch.Tensor], dtype: torch.dtype
) -> torch.Tensor:
    """Mean squared error of what was added; of a model that tells its variance too, of its first half.

    What goes in is of the type that text encoders and VAE computed it in (train_text_to_image.py: weight_dtype).
    """
    name = next(iter(batch))
    batch = {key: value.to(dtype) if value.is_floating_point() else value for key, value in batch.items()}
    clean = batch[name]
    noise = torch.randn_like(clean)
    words: dict[str, Any] = {**shared, name: clean + noise}
    for key in [key for key in batch if key != name]:
        table, _, inner = key.rpartition(".")
        (words.setdefault(table, {}) if table else words)[inner] = batch[key]
    predicted = model(**words).sample
    if predicted.shape[1:2] != noise.shape[1:2]:
        predicted = predicted.chunk(2, dim=1)[0]
    return F.mse_loss(predicted.float(), noise.float(), reduction="mean")


if __name__ == "__main__":
    main()
