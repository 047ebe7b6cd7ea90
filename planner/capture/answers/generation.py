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
    translations: int = 0
    """Generations of encoder-decoders, which were not run either."""

    def lines(self) -> tuple[str, ...]:
        """For people."""
        if not self.translations:
            return self._completed()
        count = f"{self.translations:,} generation{'s' * (self.translations > 1)} of an encoder-decoder before the step"
        told = f"{count} not run, but given as tokens of full length: no weight is changed by generating"
        return (told, *self._completed())

    def _completed(self) -> tuple[str, ...]:
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
        mixin = module.GenerationMixin
        mixin.generate = generating(module, mixin.generate, generated, roll_out)

    when_imported("transformers.generation.utils", take)
    for name in ("gkd.gkd_trainer", "gold.gold_trainer"):
        when_imported(f"trl.experimental.{name}", lambda module: setattr(module, "random", _TheLonger()))
    yield


def generating(
    module: Any, original: Callable[..., Any], generated: Generated, roll_out: RollOut
) -> Callable[..., Any]:
    """What stands in the place of transformers' `GenerationMixin.generate`; `module` has its classes of results."""

    def generate(model: Any, inputs: Any = None, generation_config: Any = None, **kwargs: Any) -> Any:
        ids = inputs if isinstance(inputs, torch.Tensor) else kwargs.get("input_ids")
        config = generation_config or model.generation_config
        scored = kwargs.get("output_scores", config.output_scores) or kwargs.get("output_logits")
        translates = model.config.is_encoder_decoder
        source = _source(ids, kwargs) if translates else ids
        if scored or not isinstance(source, torch.Tensor):
            return original(model, inputs, generation_config, **kwargs)
        times = kwargs.get("num_return_sequences") or config.num_return_sequences or 1
        rows = source.shape[0] * times
        if translates:
            generated.translations += 1
            # A decoder's own tokens, its first one among them: no part of the source stands before them.
            most = 1 + _tokens(config, kwargs, 1)
            found = torch.full((rows, most), 5, dtype=torch.long).to(source.device)
            kind = "GenerateEncoderDecoderOutput"
        else:
            most = _tokens(config, kwargs, source.shape[1])
            generated.passes += 1
            generated.tokens = max(generated.tokens, most)
            generated.rows = max(generated.rows, rows)
            generated.counted = roll_out(model, original, source, config, most)
            new = torch.full((rows, most), 5, dtype=source.dtype).to(source.device)
            found = torch.cat([source.repeat_interleave(times, dim=0) if times > 1 else source, new], dim=1)
            kind = "GenerateDecoderOnlyOutput"
        if kwargs.get("return_dict_in_generate", config.return_dict_in_generate):
            return getattr(module, kind)(sequences=found)
        return found

    return generate


_SOURCES = ("inputs_embeds", "input_features", "input_values", "pixel_values")
"""What an encoder is given in place of token ids."""


def _source(ids: Any, kwargs: dict[str, Any]) -> torch.Tensor | None:
    """What is translated."""
    given = (ids, *(kwargs.get(name) for name in _SOURCES))
    return next((one for one in given if isinstance(one, torch.Tensor)), None)


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
