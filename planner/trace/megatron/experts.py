"""Mixture-of-experts layers and multi-latent attention (core/transformer/moe, multi_latent_attention.py)."""

from torch import nn

from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout


class ExpertLayer(nn.Module):
    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        raise NotImplementedError


class LatentSelfAttention(nn.Module):
    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        raise NotImplementedError
