"""Lion: bitsandbytes' in 32 and 8 bits, paged or not, and lion-pytorch's.

bitsandbytes/optim/optimizer.py (0.50.2): Optimizer1State.init_state. Its kernels work in place.
lion-pytorch (0.2.5), lion_pytorch/lion_pytorch.py: update_fn, Lion.step: a clone of the moment, and the sum with the
gradient beside it, for one parameter after another.
"""

from collections.abc import Iterator, Sequence
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
from gpu_plan.planner.workload.optimizers.traits import Kept, OptimizerTraits, Ran, Scratch, passes

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor


def _state(tensor: "LocalTensor", full_embeddings: bool, *, paged: bool) -> Iterator[Kept]:
    """One moment, in fp32 whatever the parameter's type."""
    yield Kept("state1", tensor.as_dtype("float32"), paged and tensor.numel >= SMALLEST_PAGED)


def _coded_state(tensor: "LocalTensor", full_embeddings: bool, *, paged: bool) -> Iterator[Kept]:
    """A code a parameter and the largest value of every block, or one fp32 moment."""
    if not is_coded(tensor, full_embeddings):
        yield from _state(tensor, full_embeddings, paged=paged)
        return
    yield Kept("state1", tensor.numel, paged and tensor.numel >= SMALLEST_PAGED)
    yield Kept("absmax1", largest_bytes(tensor))


def _ran(found: Ran, *classes: str) -> bool:
    """The Trainer's `Lion(optim_bits=8)` is told from `Lion()` by its state alone."""
    return found.package == PACKAGE and found.kind in classes


def _own_state(tensor: "LocalTensor", full_embeddings: bool) -> Iterator[Kept]:
    yield Kept("exp_avg", tensor.nbytes)


def _own_step(scratch: Scratch, tensors: Sequence["LocalTensor"]) -> None:
    """`update = exp_avg.clone().mul_(beta1).add(grad).sgn_()`, which goes as the function returns."""
    for tensor in tensors:
        scratch.bind("clone", tensor.nbytes, tensor.name)
        scratch.bind("update", tensor.nbytes, tensor.name)
        scratch.close()


KINDS = (
    OptimizerTraits(
        name="lion",
        place=30,
        state=partial(_state, paged=False),
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
        state=partial(_coded_state, paged=False),
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
    OptimizerTraits(
        name="paged-lion",
        place=32,
        state=partial(_state, paged=True),
        traffic=passes(5),
        saved_bytes=(4.0, 4.0),
        package=PACKAGE,
        takes_dtensors=False,
        is_paged=True,
        optim="paged_lion_32bit",
        optim_read=("paged_lion",),
        captured=lambda seen: captured_as(seen, "lion", 32, paged=True),
        ran=lambda found: _ran(found, "lion", "pagedlion", "pagedlion32bit"),
        explored=None,
    ),
    OptimizerTraits(
        name="paged-lion-8bit",
        place=33,
        state=partial(_coded_state, paged=True),
        shared=partial(code_tables, 1),
        traffic=coded_traffic(1),
        saved_bytes=(1.0, 1.0),
        package=PACKAGE,
        takes_dtensors=False,
        is_paged=True,
        optim="paged_lion_8bit",
        captured=lambda seen: captured_as(seen, "lion", 8, paged=True),
        ran=lambda found: _ran(found, "lion", "pagedlion8bit"),
        explored=None,
    ),
    OptimizerTraits(
        name="lion-pytorch",
        place=34,
        help="lion-pytorch's loop",
        state=_own_state,
        step=_own_step,
        # mul (2); clone (2), mul (2), add (3), sgn (2), add (3); mul (2), add (3)
        traffic=passes(19),
        saved_bytes=(4.0, 2.0),
        package="lion-pytorch",
        takes_dtensors=True,
        optim_read=("lion_pytorch",),  # axolotl
        captured=lambda seen: seen.module.startswith("lion_pytorch") and seen.name == "Lion",
        ran=lambda found: found.package == "lion_pytorch",
        explored=None,
    ),
)
