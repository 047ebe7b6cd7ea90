"""State that bitsandbytes keeps as codes by block, for its optimizers of 8 bits.

bitsandbytes/optim/optimizer.py (0.50.2): Optimizer8bit.get_state_buffer, fill_qmap. Its kernels work in place.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpu_plan.planner.units import ceil_div
from gpu_plan.planner.workload.optimizers.traits import Kept, Seen, Traffic

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor

PACKAGE = "bitsandbytes"
SMALLEST_PAGED = 100_000
"""Elements from which state of a paged optimizer lies in managed memory."""
_BLOCK = 256
_SMALLEST_8_BIT = 4096
_MAP_BYTES = 1024
"""Each table from codes to values: 256 fp32 numbers, shared by all parameters."""


def is_coded(tensor: "LocalTensor", full_embeddings: bool) -> bool:
    """Small tensors keep fp32 state; so do embeddings where the Trainer asks for it (trainer.py: create_optimizer)."""
    return tensor.numel >= _SMALLEST_8_BIT and not (full_embeddings and tensor.is_embedding)


def largest_bytes(tensor: "LocalTensor") -> int:
    """The largest value of every block, in fp32."""
    return 4 * ceil_div(tensor.numel, _BLOCK)


def code_tables(moments: int, tensors: Sequence["LocalTensor"], full_embeddings: bool) -> Iterator[Kept]:
    """`init_state` moves a table for each moment to the device."""
    if any(is_coded(tensor, full_embeddings) for tensor in tensors):
        yield from (Kept(f"qmap{moment}", _MAP_BYTES) for moment in range(1, moments + 1))


def coded_traffic(moments: int) -> Traffic:
    """One kernel: weight and gradient read, weight written, codes of each moment read and written."""
    return lambda element_bytes: 3 * element_bytes + 2 * moments


def captured_as(seen: Seen, algorithm: str, bits: int, *, paged: bool) -> bool:
    """By algorithm, bits and paging: the Trainer asks for `AdamW(optim_bits=8)`, others for `AdamW8bit`."""
    kind = (seen.options.get("optim_bits"), seen.options.get("is_paged"))
    return seen.is_bitsandbytes and algorithm in seen.name.lower() and kind == (bits, paged)


def captured_named(seen: Seen, stem: str, bits: int, *, paged: bool) -> bool:
    """By the class's own name, which no other's holds: `AdaGrad` is not Adam's kin; Adam allocates as AdamW does."""
    name = seen.name.lower().removeprefix("paged").removesuffix("32bit").removesuffix("8bit")
    kind = (seen.options.get("optim_bits"), seen.options.get("is_paged"))
    return seen.is_bitsandbytes and (name == stem or (name, stem) == ("adam", "adamw")) and kind == (bits, paged)
