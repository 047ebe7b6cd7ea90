"""tiktoken's encodings, whose files are not at hand: one byte one token, of the real one's size."""

from typing import Any

from gpu_plan.planner.capture.imports import when_imported
from gpu_plan.planner.capture.standin.told import Told

_SIZES = {"gpt2": 50257, "r50k_base": 50257, "p50k_base": 50281, "cl100k_base": 100277, "o200k_base": 200019}
_OF_MODELS = {"gpt-4": "cl100k_base", "gpt-3.5-turbo": "cl100k_base", "gpt-4o": "o200k_base"}
_END = "<|endoftext|>"


def stand_in_for_encodings(told: Told) -> None:
    """For the rest of the process, where tiktoken is imported."""

    def take(module: Any) -> None:
        if not hasattr(module, "get_encoding"):
            return  # a file of the user's own that is called so
        load = module.get_encoding

        def get_encoding(name: str) -> Any:
            try:
                return load(name)
            except Exception:  # whatever its download ends with: requests' own, urllib3's, OSError
                if name not in _SIZES:
                    raise
                told.need(f"tiktoken's {name}")
                told.tell(f"tiktoken's {name} is a stand-in of {_SIZES[name]:,} tokens: one byte is one token")
                return _made(module, name)

        module.get_encoding = get_encoding
        module.encoding_for_model = lambda model: get_encoding(_OF_MODELS.get(model, "gpt2"))

    when_imported("tiktoken", take)


def _made(module: Any, name: str) -> Any:
    ranks = {bytes([number]): number for number in range(256)}
    ranks |= {b"\xff\xfe" + number.to_bytes(4, "big"): number for number in range(256, _SIZES[name] - 1)}
    return module.Encoding(
        name=name, pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={_END: _SIZES[name] - 1}
    )
