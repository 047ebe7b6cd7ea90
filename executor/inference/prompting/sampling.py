"""How tokens are chosen. Sampled ones depend on the seed, the prompt and the position only.

`generate` draws for a whole batch from one generator: another batch, rank or restart gives other texts. Here the
highest of log-probability plus Gumbel noise is taken, which is a draw from the softmax (the Gumbel-max trick), and the
noise of each prompt has a generator of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_MIX = 0x9E3779B97F4A7C15
"""Odd, near 2^64 divided by the golden ratio: neighbouring prompts get far seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Greedy where the temperature is 0."""

    temperature: float = 0.0
    top_k: int = 0
    """0: all tokens."""
    top_p: float = 1.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


def processors(sampling: Sampling, indexes: Sequence[int]) -> list[Any]:
    """Logits processors for a batch of the prompts `indexes`, to be used with `do_sample=False`."""
    if sampling.greedy:
        return []
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    found: list[Any] = [TemperatureLogitsWarper(float(sampling.temperature))]
    if sampling.top_k:
        found.append(TopKLogitsWarper(top_k=sampling.top_k))
    if sampling.top_p < 1:
        found.append(TopPLogitsWarper(top_p=sampling.top_p))
    return [*found, _Gumbel(sampling.seed, indexes)]


class _Gumbel:
    """Adds each prompt's own noise; the highest score is then a sample."""

    def __init__(self, seed: int, indexes: Sequence[int]) -> None:
        import torch

        self._generators = []
        for index in indexes:
            generator = torch.Generator()
            generator.manual_seed((seed * _MIX + (index + 1) * 0xBF58476D1CE4E5B9) % 2**63)
            self._generators.append(generator)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        import torch

        noise = torch.stack([torch.rand(scores.shape[-1], generator=one).clamp_min_(1e-20) for one in self._generators])
        return scores.float() - torch.log(-torch.log(noise)).to(scores.device)
