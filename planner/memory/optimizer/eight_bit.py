"""bitsandbytes' 8-bit AdamW, paged or not, and its Lion in 32 and 8 bits.

bitsandbytes/optim/optimizer.py (0.50.2): Optimizer2State.init_state, Optimizer1State.init_state,
Optimizer8bit.get_state_buffer, fill_qmap. Its kernels work in place.
"""

from collections.abc import Iterator

from gpu_plan.planner.memory.optimizer.local_tensor import LocalTensor, Role
from gpu_plan.planner.memory.optimizer.state import Kept
from gpu_plan.planner.units import ceil_div

_BLOCK = 256
_SMALLEST_8_BIT = 4096
_SMALLEST_PAGED = 100_000
MAP_BYTES = 1024
"""Each table from codes to values: 256 fp32 numbers, shared by all parameters."""


def is_8_bit(tensor: LocalTensor, full_embeddings: bool) -> bool:
    """Small tensors keep fp32 state; so do embeddings where the Trainer asks for it (trainer.py: create_optimizer)."""
    return tensor.numel >= _SMALLEST_8_BIT and not (full_embeddings and tensor.role is Role.EMBEDDING)


def adam_8bit_state(tensor: LocalTensor, *, paged: bool, full_embeddings: bool) -> Iterator[Kept]:
    """Two codes a parameter and the largest value of every block, or two fp32 moments."""
    managed = paged and tensor.numel >= _SMALLEST_PAGED
    quantized = is_8_bit(tensor, full_embeddings)
    size = tensor.numel if quantized else tensor.as_dtype("float32")
    for moment in ("state1", "state2"):
        yield Kept(moment, size, managed)
    if quantized:
        for moment in ("absmax1", "absmax2"):
            yield Kept(moment, 4 * ceil_div(tensor.numel, _BLOCK))


def lion_state(tensor: LocalTensor) -> Iterator[Kept]:
    """One moment, in fp32 whatever the parameter's type."""
    yield Kept("state1", tensor.as_dtype("float32"))


def lion_8bit_state(tensor: LocalTensor, *, full_embeddings: bool) -> Iterator[Kept]:
    """A code a parameter and the largest value of every block, or one fp32 moment."""
    if not is_8_bit(tensor, full_embeddings):
        yield from lion_state(tensor)
        return
    yield Kept("state1", tensor.numel)
    yield Kept("absmax1", 4 * ceil_div(tensor.numel, _BLOCK))
