"""Whose loss stands over a vocabulary that ranks share."""

from typing import Literal

CrossEntropy = Literal["unfused", "native", "te", "verl", "verl-entropy", "verl-fused", "verl-value"]
"""Megatron-core's own, its fused one, Transformer Engine's, that of verl's actor, without or with a gradient of its
entropy or in one with the head, or that of its critic, which has no vocabulary."""
