"""The named answers to host reads: (module, function) -> value and what it assumes."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One answer."""

    value: bool | int | float
    assumes: str


POLICIES: dict[tuple[str, str], Policy] = {
    ("transformers.masking_utils", "find_packed_sequence_indices"): Policy(
        value=True, assumes="sequences are not packed"
    ),
    ("transformers.modeling_flash_attention_utils", "_is_packed_sequence"): Policy(
        value=False, assumes="sequences are not packed"
    ),
    ("transformers.modeling_utils", "warn_if_padding_and_no_attention_mask"): Policy(
        value=False, assumes="inputs hold no padding token"
    ),
}

_OVERFLOW = re.compile(r"torch\.(?:(isfinite)\(\w+\)\.all|(?:isinf|isnan)\(\w+\)\.any)\(\)")
"""How classes that are trained in fp16 ask whether a layer's output overflowed, to clamp it then: Bart, Marian, LED,
LongT5, Pix2Struct, DETR and others (transformers models/bart/modeling_bart.py: BartEncoderLayer.forward)."""
_CLASSES = "transformers.models."


def overflow_policy(module: str, line: str) -> Policy | None:
    """Of a line of a model's class that asks whether values are finite: they are. None for any other line."""
    asked = _OVERFLOW.search(line) if module.startswith(_CLASSES) else None
    return None if asked is None else Policy(value=asked[1] is not None, assumes="activations do not overflow fp16")
