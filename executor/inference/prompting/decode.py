"""One batch of prompts through the model: prefill, then a token at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpu_plan.executor.inference.loading.load import Loaded
from gpu_plan.executor.inference.prompting.measure import Interval, Meter
from gpu_plan.executor.inference.prompting.sampling import Sampling, processors


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A prompt as tokens."""

    index: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Tokens with a meaning of their own."""

    pad: int
    stop: tuple[int, ...] = ()
    """Tokens that end a text; empty: every prompt gets all its new tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a batch gave, and what it took."""

    outputs: tuple[tuple[int, ...], ...]
    """New tokens of each prompt, the one that ended it included."""
    prompt_tokens: int
    """All that were prefilled, padding included."""
    prefill: Interval
    decode: Interval
    decode_steps: int
    """Forward passes after the first."""

    @property
    def decoded_tokens(self) -> int:
        """Tokens that decode steps made, finished prompts not counted."""
        return sum(max(0, len(output) - 1) for output in self.outputs)


def run_batch(
    loaded: Loaded,
    items: Sequence[Item],
    *,
    new_tokens: int,
    ends: Ends,
    sampling: Sampling,
    meter: Meter,
    cache_kind: str | None = None,
    chunk: int | None = None,
) -> Batch:
    """Generates for all of `items` at once; shorter prompts are padded on the left.

    `cache_kind`: `static` or `fp8`; None for what `generate` does by itself. `chunk`: tokens of the prompts that one
    forward pass takes; None: all of them.
    """
    import torch
    from transformers import GenerationConfig, LogitsProcessorList

    width = max(len(item.tokens) for item in items)
    rows = [[ends.pad] * (width - len(item.tokens)) + list(item.tokens) for item in items]
    mask = [[0] * (width - len(item.tokens)) + [1] * len(item.tokens) for item in items]
    config = GenerationConfig(
        max_new_tokens=new_tokens,
        do_sample=False,
        num_beams=1,
        use_cache=True,
        pad_token_id=ends.pad,
        eos_token_id=list(ends.stop) or None,
        bos_token_id=loaded.model.config.bos_token_id if hasattr(loaded.model.config, "bos_token_id") else None,
        decoder_start_token_id=getattr(loaded.model.config, "decoder_start_token_id", None),
        prefill_chunk_size=chunk,
        **_CACHES.get(cache_kind or "", {}),
    )
    clock = _Clock(meter)
    cache = loaded.cache()
    meter.cut()
    with torch.inference_mode():
        output = loaded.model.generate(
            input_ids=torch.tensor(rows, device=loaded.device),
            attention_mask=torch.tensor(mask, device=loaded.device),
            generation_config=config,
            logits_processor=LogitsProcessorList(processors(sampling, [item.index for item in items])),
            streamer=clock,
            **({} if cache is None else {"past_key_values": cache}),
        )
    decode = meter.cut()
    skip = 1 if getattr(loaded.model.config, "is_encoder_decoder", False) else width
    return Batch(
        outputs=tuple(_until_end(row, ends) for row in output[:, skip:].tolist()),
        prompt_tokens=width * len(items),
        prefill=clock.prefill or decode,
        decode=decode,
        decode_steps=max(0, clock.steps - 1),
    )


_CACHES: dict[str, dict[str, Any]] = {
    "static": {"cache_implementation": "static"},
    "fp8": {"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}},
}
"""GenerationConfig's words for the plan's `--kv-dtype fp8` and `--set cache.implementation=static`."""


class _Clock:
    """A streamer that prints nothing: `generate` hands it the prompt, then each step's tokens."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._prompt_seen = False
        self.prefill: Interval | None = None
        self.steps = 0

    def put(self, value: Any) -> None:
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        self.steps += 1
        if self.prefill is None:
            self.prefill = self._meter.cut()

    def end(self) -> None:
        """Nothing is held back."""


def _until_end(tokens: list[int], ends: Ends) -> tuple[int, ...]:
    """What comes after the token that ends a text is padding."""
    for at, token in enumerate(tokens):
        if token in ends.stop:
            return tuple(tokens[: at + 1])
    return tuple(tokens)
