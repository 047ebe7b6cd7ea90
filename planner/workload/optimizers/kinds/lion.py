"""bitsandbytes' Lion in 32 and 8 bits.

bitsandbytes/optim/optimizer.py (0.50.2): Optimizer1State.init_state. Its kernels work in place.
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
from gpu_plan.planner.workload.optimizers.traits import Kept, OptimizerTraits, Ran, passes

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor


def _state(tensor: "LocalTensor", full_embeddings: bool) -> Iterator[Kept]:
    """One moment, in fp32 whatever the parameter's type."""
    yield Kept("state1", tensor.as_dtype("float32"))


def _coded_state(tensor: "LocalTensor", full_embeddings: bool) -> Iterator[Kept]:
    """A code a parameter and the largest value of every block, or one fp32 moment."""
    if not is_coded(tensor, full_embeddings):
        yield from _state(tensor, full_embeddings)
        return
    yield Kept("state1", tensor.numel)
    yield Kept("absmax1", largest_bytes(tensor))


def _ran(found: Ran, *classes: str) -> bool:
    """The Trainer's `Lion(optim_bits=8)` is told from `Lion()` by its state alone."""
    return found.package == PACKAGE and found.kind in classes


KINDS = (
    OptimizerTraits(
        name="lion",
        place=30,
        state=_state,
        traffic=passes(5),  # one kernel: weight, gradient and moment read, weight and moment written
        saved_bytes=(4.0, 4.0),
        package=PACKAGE,
        takes_dtensors=False,
        optim="lion_32bit",
        captured=lambda seen: captured_as(seen, "lion", 32, paged=False),
        ran=lambda found: _ran(found, "lion", "lion32bit"),
        classes=(r"Lion\w*",),
        explored=22,
    ),
    OptimizerTraits(
        name="lion-8bit",
        place=31,
        help="bitsandbytes",
        state=_coded_state,
        shared=partial(code_tables, 1),
        traffic=coded_traffic(1),
        saved_bytes=(1.0, 1.0),
        package=PACKAGE,
        takes_dtensors=False,
        optim="lion_8bit",
        captured=lambda seen: captured_as(seen, "lion", 8, paged=False),
        ran=lambda found: _ran(found, "lion", "lion8bit"),
        explored=23,
    ),
)
