"""CLIPViTModel and MultimodalProjector (megatron/core/models/vision/clip_vit_model.py, multimodal_projector.py)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.layers import Mlp
from gpu_plan.planner.trace.megatron.products.norms import Norm, parameter
from gpu_plan.planner.trace.megatron.stage import layer_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Sizes of a picture and of its patches, in pixels (`--img-h`, `--img-w`, `--patch-dim`)."""

    height: int
    width: int
    patch: int
    layers: int
    """Of the tower (`--encoder-num-layers`)."""
    keeps_class: bool = True
    """Whether the class token goes on to the language model (no `--disable-vision-class-token`)."""

    @property
    def patches(self) -> int:
        return (self.height // self.patch) * (self.width // self.patch)

    @property
    def tokens(self) -> int:
        """That one picture takes in the language model (get_num_image_embeddings)."""
        return self.patches + self.keeps_class


class Tower(nn.Module):
    """Patches, a class token and learned positions, a norm, and layers that attend both ways, without a last norm."""

    def __init__(self, model: Architecture, layout: Layout, image: Image) -> None:
        super().__init__()
        half: Any = {"dtype": torch.bfloat16, "device": "meta"}
        self.ln_pre = Norm(model.hidden, bias=model.norm == "layer")
        self.conv1 = nn.Conv2d(3, model.hidden, image.patch, stride=image.patch, bias=False, **half)
        self.position_embeddings = nn.Embedding(image.patches + 1, model.hidden, **half)
        self.class_token = parameter(1, 1, model.hidden)
        self.register_buffer("position_ids", torch.empty(image.patches + 1, dtype=torch.int64, device="meta"))
        self.layers = nn.ModuleList(layer_of(model, layout, number) for number in range(image.layers))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """[pictures, 3, height, width] to [pictures, patches and the class token, hidden]."""
        x = self.conv1(pictures)
        x = x.reshape(*x.shape[:2], -1).permute(0, 2, 1)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = x + self.position_embeddings(self.get_buffer("position_ids").expand(1, -1))
        x = self.ln_pre(x).permute(1, 0, 2).contiguous()
        for layer in self.layers:
            x = layer(x)
        return x.permute(1, 0, 2).contiguous()


class Projection(nn.Module):
    """Two linear layers behind a norm; their last bias is added apart."""

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        self.encoder = Mlp(model, layout, model.intermediate)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.encoder(x)
        bias: Any = self.encoder.linear_fc2.bias
        return found if bias is None else found + bias
