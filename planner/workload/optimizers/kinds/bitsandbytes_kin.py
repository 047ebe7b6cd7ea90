"""bitsandbytes' optimizers beside AdamW and Lion: one, two or three moments in 32 or 8 bits, paged or not.

bitsandbytes/optim/optimizer.py (0.50.2): Optimizer1State.init_state, Optimizer2State.init_state;
bitsandbytes/optim/ademamix.py: AdEMAMix.init_state, whose first buffer is twice as large. LAMB and LARS keep a norm of
the update, four bytes for each parameter. Their kernels work in place.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gpu_plan.planner.workload.optimizers.block_codes import (
    PACKAGE,
    SMALLEST_PAGED,
    captured_named,
    code_tables,
    coded_traffic,
    is_coded,
    largest_bytes,
)
from gpu_plan.planner.workload.optimizers.traits import Kept, OptimizerTraits, Ran, nothing_shared

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor

Moments = tuple[int, ...]
"""Parameter-sized moments in `state1`, and in `state2` where there is one."""


def _state(
    tensor: "LocalTensor", full_embeddings: bool, *, moments: Moments, bits: int, paged: bool, norms: bool
) -> Iterator[Kept]:
    coded = bits == 8 and is_coded(tensor, full_embeddings)
    size = tensor.numel if coded else tensor.as_dtype("float32")
    managed = paged and tensor.numel >= SMALLEST_PAGED
    for number, stacked in enumerate(moments, 1):
        yield Kept(f"state{number}", stacked * size, managed)
        if coded:
            yield Kept(f"absmax{number}", stacked * largest_bytes(tensor))
    if norms:
        yield Kept("unorm_vec", 4)


def _ran(found: Ran, *, stem: str, bits: int, paged: bool) -> bool:
    """A class of no bits in its name may have been given either; `paged` is in the name or was given."""
    kind = found.kind.removeprefix("paged")
    return (
        found.package == PACKAGE
        and kind in (stem, f"{stem}{bits}bit")
        and (paged or not found.kind.startswith("paged"))
    )


def _kind(
    name: str,
    place: int,
    stem: str,
    moments: Moments,
    bits: int,
    *,
    paged: bool = False,
    norms: bool = False,
    optim: tuple[str, ...] = (),
) -> OptimizerTraits:
    buffers = sum(moments)
    return OptimizerTraits(
        name=name,
        place=place,
        help="bitsandbytes",
        state=partial(_state, moments=moments, bits=bits, paged=paged, norms=norms),
        shared=partial(code_tables, len(moments)) if bits == 8 else nothing_shared,
        # One kernel: weight and gradient read, weight written, each moment of 4 bytes read and written.
        traffic=coded_traffic(buffers) if bits == 8 else lambda element_bytes: 3 * element_bytes + 8 * buffers,
        saved_bytes=(buffers * bits / 8.0, buffers * bits / 8.0),
        package=PACKAGE,
        takes_dtensors=False,
        is_paged=paged,
        optim=optim[0] if optim else "",
        optim_read=optim[1:],
        captured=lambda seen: captured_named(seen, stem, bits, paged=paged),
        ran=partial(_ran, stem=stem, bits=bits, paged=paged),
        explored=None,
    )


_ADEMAMIX: Moments = (2, 1)

KINDS = (
    _kind("adamw-bnb", 23, "adamw", (1, 1), 32),
    _kind("ademamix", 24, "ademamix", _ADEMAMIX, 32, optim=("ademamix",)),
    _kind("ademamix-8bit", 25, "ademamix", _ADEMAMIX, 8, optim=("ademamix_8bit",)),
    _kind("paged-ademamix", 26, "ademamix", _ADEMAMIX, 32, paged=True, optim=("paged_ademamix_32bit",)),
    _kind("paged-ademamix-8bit", 27, "ademamix", _ADEMAMIX, 8, paged=True, optim=("paged_ademamix_8bit",)),
    _kind("rmsprop-bnb", 48, "rmsprop", (1,), 32, optim=("rmsprop_bnb", "rmsprop_bnb_32bit")),
    _kind("rmsprop-8bit", 49, "rmsprop", (1,), 8, optim=("rmsprop_bnb_8bit",)),
    _kind("adagrad-bnb", 65, "adagrad", (1,), 32),
    _kind("adagrad-8bit", 66, "adagrad", (1,), 8),
    _kind("sgd-bnb", 67, "sgd", (1,), 32),
    _kind("sgd-8bit", 68, "sgd", (1,), 8),
    _kind("lamb", 61, "lamb", (1, 1), 32, norms=True),
    _kind("lamb-8bit", 62, "lamb", (1, 1), 8, norms=True),
    _kind("lars", 63, "lars", (1,), 32, norms=True),
    _kind("lars-8bit", 64, "lars", (1,), 8, norms=True),
)
