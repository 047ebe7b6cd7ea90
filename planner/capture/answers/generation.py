"""Completions that a script generates before it trains on them: as many tokens as may come, and none of them computed.

A generation on meta runs the model once for each token, for minutes, and gives no values. What it holds on a GPU is not
part of the step; the notes say so.
"""

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from gpu_plan.planner.capture.imports import when_imported

RollOut = Callable[[Any, Callable[..., Any], torch.Tensor, Any, int], bool]
_DEFAULT_TOKENS = 20
"""transformers generation/configuration_utils.py: max_length, where nothing is said."""


@dataclass(slots=True)
class Generated:
    """What was asked for."""

    passes: int = 0
    rows: int = 0
    """Most samples at once."""
    counted: bool = False
    """Whether what it holds was recorded."""
    tokens: int = 0
    """Of the longest completion."""

    def lines(self) -> tuple[str, ...]:
        """For people."""
        if not self.passes:
            return ()
        if self.counted:
            return (
                f"completions of {self.tokens:,} tokens, all of full length: the model's own generate is run over the"
                " prompt and at the last token, and between them the cache grows",
            )
        return (
            f"completions of up to {self.tokens:,} tokens were not generated, only trained on: what generating them"
            " holds on the device is not counted",
        )


@contextlib.contextmanager
def completions(generated: Generated, roll_out: RollOut) -> Iterator[None]:
    """Within, `generate` gives prompts with the longest completions at once. For the rest of the process.

    `roll_out(model, generate, ids, config, tokens)` runs the original where it wants to see it, and says whether.
    """

    def take(module: Any) -> None:
        original = module.GenerationMixin.generate

        def generate(model: Any, inputs: Any = None, generation_config: Any = None, **kwargs: Any) -> Any:
            ids = inputs if isinstance(inputs, torch.Tensor) else kwargs.get("input_ids")
            config = generation_config or model.generation_config
            scored = kwargs.get("output_scores", config.output_scores) or kwargs.get("output_logits")
            if not isinstance(ids, torch.Tensor) or scored or model.config.is_encoder_decoder:
                return original(model, inputs, generation_config, **kwargs)
            most = _tokens(config, kwargs, ids.shape[1])
            times = kwargs.get("num_return_sequences") or config.num_return_sequences or 1
            generated.passes += 1
            generated.tokens = max(generated.tokens, most)
            generated.rows = max(generated.rows, ids.shape[0] * times)
            generated.counted = roll_out(model, original, ids, config, most)
            new = torch.full((ids.shape[0] * times, most), 5, dtype=ids.dtype).to(ids.device)
            found = torch.cat([ids.repeat_interleave(times, dim=0) if times > 1 else ids, new], dim=1)
            if kwargs.get("return_dict_in_generate", config.return_dict_in_generate):
                return module.GenerateDecoderOnlyOutput(sequences=found)
            return found

        module.GenerationMixin.generate = generate

    when_imported("transformers.generation.utils", take)
    for name in ("gkd.gkd_trainer", "gold.gold_trainer"):
        when_imported(f"trl.experimental.{name}", lambda module: setattr(module, "random", _TheLonger()))
    yield


class _TheLonger:
    """In place of `random` where a trainer tosses whether a step is trained on given answers or on its own completions:
    the longer one comes (trl/experimental/gkd/gkd_trainer.py: training_step; gold/gold_trainer.py: _fill_buffer, which
    tosses for each slice of what it buffers)."""

    def random(self) -> float:
        """0, which every share reaches, for completions; 1 for what is given."""
        trainer, inputs = _tossing(sys._getframe(1))
        if inputs is None:  # pictures beside the text, which are collated later
            return random.random()
        own = inputs["prompts"].shape[1] + (trainer.generation_config.max_new_tokens or _DEFAULT_TOKENS)
        return 0.0 if trainer.lmbda > 0 and own > inputs["input_ids"].shape[1] else 1.0

    def __getattr__(self, name: str) -> Any:
        return getattr(random, name)


def _tossing(frame: FrameType | None) -> tuple[Any, Any]:
    """The trainer and the batch whose frame this is, or one within it; None where there is no such batch yet."""
    while frame is not None:
        found = frame.f_locals
        if "self" in found and ("inputs" in found or "slices" in found):
            slices = found.get("slices")
            return found["self"], found["inputs"] if "inputs" in found else slices[0] if slices else None
        frame = frame.f_back
    return None, None


def _tokens(config: Any, kwargs: dict[str, Any], prompt: int) -> int:
    new = kwargs.get("max_new_tokens") or config.max_new_tokens
    if new:
        return int(new)
    longest = kwargs.get("max_length") or config.max_length
    return max(1, int(longest) - prompt) if longest else _DEFAULT_TOKENS
