"""Element types by their torch name, sized in bits so that sub-byte types have a place."""

from functools import cache

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.units import ceil_div

BITS: dict[str, int] = {
    "float64": 64,
    "float32": 32,
    "float16": 16,
    "bfloat16": 16,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    "int64": 64,
    "int32": 32,
    "int16": 16,
    "int8": 8,
    "uint8": 8,
    "bool": 8,
    "complex64": 64,
    "complex128": 128,
}


def element_bits(dtype: str) -> int:
    """Bits of one element of the torch dtype called `dtype` (`bfloat16`, `torch.bfloat16`)."""
    known = BITS.get(dtype)
    if known is not None:
        return known
    try:
        return BITS[dtype.removeprefix("torch.")]
    except KeyError:
        raise InputError(f"element type {dtype!r} is unknown; known: {', '.join(BITS)}") from None


@cache
def is_floating(dtype: str) -> bool:
    """Whether the torch dtype holds floating-point numbers; 4-bit weights are packed into integers."""
    return dtype.removeprefix("torch.").startswith(("float", "bfloat"))


def tensor_bytes(num_elements: int, dtype: str) -> int:
    """Bytes of `num_elements` elements of `dtype`."""
    return ceil_div(num_elements * element_bits(dtype), 8)
