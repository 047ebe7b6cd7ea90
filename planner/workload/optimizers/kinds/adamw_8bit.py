"""bitsandbytes' AdamW: in 8 bits, paged or not, and paged in 32.

bitsandbytes/optim/optimizer.py (0.50.2): Optimizer2State.init_state. Its kernels work in place.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gpu_plan.planner.workload.optimizers.block_codes import (
    PACKAGE,
    SMALLEST_PAGED,
    captured_as,
    code_tables,
    coded_traffic,
    is_coded,
    largest_bytes,
)
from gpu_plan.planner.workload.optimizers.traits import Kept, OptimizerTraits, Ran

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor


def _state(tensor: "LocalTensor", full_embeddings: bool, *, paged: bool) -> Iterator[Kept]:
    """Two codes a parameter and the largest value of every block, or two fp32 moments."""
    managed = paged and tensor.numel >= SMALLEST_PAGED
    coded = is_coded(tensor, full_embeddings)
    size = tensor.numel if coded else tensor.as_dtype("float32")
    for moment in ("state1", "state2"):
        yield Kept(moment, size, managed)
    if coded:
        for moment in ("absmax1", "absmax2"):
            yield Kept(moment, largest_bytes(tensor))


def _paged_state(tensor: "LocalTensor", full_embeddings: bool) -> Iterator[Kept]:
    """Two fp32 moments, whatever the parameter's type."""
    for moment in ("state1", "state2"):
        yield Kept(moment, tensor.as_dtype("float32"), tensor.numel >= SMALLEST_PAGED)


def _ran(found: Ran, *, paged: bool) -> bool:
    return found.is_eight_bit and "adamw" in found.kind and ("paged" in found.kind) == paged


KINDS = (
    OptimizerTraits(
        name="adamw-8bit",
        place=20,
        state=partial(_state, paged=False),
        shared=partial(code_tables, 2),
        traffic=coded_traffic(2),
        saved_bytes=(2.0, 2.0),
        package=PACKAGE,
        takes_dtensors=False,
        optim="adamw_bnb_8bit",
        optim_read=("adamw_8bit",),
        captured=lambda seen: captured_as(seen, "adam", 8, paged=False),
        ran=partial(_ran, paged=False),
        explored=20,
    ),
    OptimizerTraits(
        name="paged-adamw-8bit",
        place=21,
        state=partial(_state, paged=True),
        shared=partial(code_tables, 2),
        traffic=coded_traffic(2),
        saved_bytes=(2.0, 2.0),
        package=PACKAGE,
        takes_dtensors=False,
        is_paged=True,
        optim="paged_adamw_8bit",
        captured=lambda seen: captured_as(seen, "adam", 8, paged=True),
        ran=partial(_ran, paged=True),
        explored=21,
    ),
    OptimizerTraits(
        name="paged-adamw",
        place=22,
        help="bitsandbytes', fp32 moments",
        state=_paged_state,
        traffic=lambda element_bytes: 3 * element_bytes + 16,  # one kernel: moments of 4 bytes read and written
        saved_bytes=(8.0, 8.0),
        package=PACKAGE,
        takes_dtensors=False,
        is_paged=True,
        optim="paged_adamw_32bit",
        optim_read=("paged_adamw",),
        captured=lambda seen: captured_as(seen, "adam", 32, paged=True),
        ran=lambda found: found.package == PACKAGE and found.kind in ("adamw", "pagedadamw", "pagedadamw32bit"),
        explored=None,
    ),
)
