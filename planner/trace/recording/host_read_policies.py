"""The named answers to host reads: (module, function) -> value and what it assumes."""

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
