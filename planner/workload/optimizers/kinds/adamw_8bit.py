"""bitsandbytes' 8-bit AdamW, paged or not.

bitsandbytes/optim/optimizer.py (0.50.2): Optimizer2State.init_state. Its kernels work in place.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gpu_plan.planner.workload.optimizers.block_codes import (
    PACKAGE,
    captured_as,
    code_tables,
    coded_traffic,
    is_coded,
    largest_bytes,
)
from gpu_plan.planner.workload.optimizers.traits import Kept, OptimizerTraits, Ran

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor

_SMALLEST_PAGED = 100_000


def _state(tensor: "LocalTensor", full_embeddings: bool, *, paged: bool) -> Iterator[Kept]:
    """Two codes a parameter and the largest value of every block, or two fp32 moments."""
    managed = paged and tensor.numel >= _SMALLEST_PAGED
    coded = is_coded(tensor, full_embeddings)
    size = tensor.numel if coded else tensor.as_dtype("float32")
    for moment in ("state1", "state2"):
        yield Kept(moment, size, managed)
    if coded:
        for moment in ("absmax1", "absmax2"):
            yield Kept(moment, largest_bytes(tensor))


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
)
