"""torch's AdamW in its three implementations: what they keep and what their steps take.

torch/optim/adam.py (2.13): _multi_tensor_adam builds `exp_avg_sq_sqrt` for a whole group at once;
_single_tensor_adam builds the square root, and its quotient `denom`, which outlives its turn; _fused_adam nothing.
torch/optim/optimizer.py: _default_to_fused_or_foreach takes foreach on accelerators only.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpu_plan.planner.workload.optimizers.foreach import decays, lists_of
from gpu_plan.planner.workload.optimizers.traits import Kept, OptimizerTraits, Ran, Scratch, Seen, passes

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor

_SCALAR = 4


def adam_state(tensor: "LocalTensor", full_embeddings: bool = False) -> Iterator[Kept]:
    """Both moments in the parameter's dtype."""
    yield Kept("exp_avg", tensor.nbytes)
    yield Kept("exp_avg_sq", tensor.nbytes)


def _fused_state(tensor: "LocalTensor", full_embeddings: bool) -> Iterator[Kept]:
    """The fused kernel counts steps on the device."""
    yield Kept("step", _SCALAR)
    yield from adam_state(tensor)


foreach_step = lists_of("exp_avg_sq_sqrt")
"""One list per dtype: the next group's is made before the variable lets go of the last one's. Gradients that Adam's L2
decay has copied are let go before."""


def _amsgrad_state(tensor: "LocalTensor", full_embeddings: bool) -> Iterator[Kept]:
    """The largest second moment so far beside both."""
    yield from adam_state(tensor)
    yield Kept("max_exp_avg_sq", tensor.nbytes)


def _loop_step(scratch: Scratch, tensors: Sequence["LocalTensor"]) -> None:
    for tensor in tensors:
        scratch.bind("sqrt", tensor.nbytes, tensor.name)
        scratch.bind("denom", tensor.nbytes, tensor.name)
        scratch.drop("sqrt")


def _captured(seen: Seen) -> bool:
    return _of_torch(seen) and not seen.options.get("amsgrad")


def _of_torch(seen: Seen) -> bool:
    return seen.is_torch and seen.name in ("AdamW", "Adam") and not seen.options.get("differentiable")


def _of_deepspeed(seen: Seen) -> bool:
    return seen.module.startswith("deepspeed") and seen.name in ("FusedAdam", "DeepSpeedCPUAdam")


def _ran(found: Ran, *, fused: bool) -> bool:
    if found.package == "deepspeed":
        return "adam" in found.kind  # its CPU and fused Adam decay weights as AdamW does, unless told otherwise
    return found.kind == "adamw" and not found.is_eight_bit and found.fused == fused


_FOREACH = passes(22)
"""_multi_tensor_adam reads and writes for mul (2), lerp (3), mul (2), addcmul (3), sqrt (2), div (2), add (2), div (2)
and addcdiv (4)."""
_LOOP = passes(20)
"""_single_tensor_adam has one division less."""
FUSED = passes(7)
"""Weight, gradient and two states read; weight and states written: one kernel, on a GPU or a CPU."""
_SAVED = (8.0, 4.0)
"""Two moments, in fp32 or in the parameters' 16 bits."""

KINDS = (
    OptimizerTraits(
        name="adamw",
        place=10,
        help="torch's default: foreach",
        leaner="adamw-fused",
        state=adam_state,
        step=foreach_step,
        traffic=_FOREACH,
        cpu_traffic=_LOOP,
        saved_bytes=_SAVED,
        package="",
        takes_dtensors=True,
        deepspeed_steps_on_host=True,
        optim="adamw_torch",
        deepspeed_torch=("adam", "adamw"),
        captured=lambda seen: (
            _captured(seen) and not seen.options.get("fused") and seen.options.get("foreach") is not False
        ),
        ran=lambda found: _ran(found, fused=False),
        classes=(r"Adam\w*",),
        explored=10,
    ),
    OptimizerTraits(
        name="adamw-fused",
        place=11,
        state=_fused_state,
        traffic=FUSED,
        saved_bytes=_SAVED,
        package="",
        takes_dtensors=True,
        deepspeed_steps_on_host=True,
        optim="adamw_torch_fused",
        optim_read=("adamw_apex_fused",),  # transformers up to 4.x
        deepspeed=("adam", "adamw"),  # FusedAdam (runtime/engine.py: _configure_basic_optimizer)
        captured=lambda seen: (_captured(seen) and bool(seen.options.get("fused"))) or _of_deepspeed(seen),
        ran=lambda found: _ran(found, fused=True),
        explored=11,
    ),
    OptimizerTraits(
        name="adamw-forloop",
        place=12,
        leaner="adamw-fused",
        state=adam_state,
        step=_loop_step,
        traffic=_LOOP,
        saved_bytes=_SAVED,
        package="",
        takes_dtensors=True,
        deepspeed_steps_on_host=True,
        optim_read=("adamw_hf",),  # transformers up to 4.x
        captured=lambda seen: (
            _captured(seen)
            and not seen.options.get("fused")
            and seen.options.get("foreach") is False
            and not decays(seen)
        ),
        ran=lambda found: _ran(found, fused=False),
        explored=None,
    ),
    OptimizerTraits(
        name="adamw-amsgrad",
        place=13,
        help="foreach, with the largest second moments",
        state=_amsgrad_state,
        step=foreach_step,
        traffic=passes(25),  # maximum (3) more
        saved_bytes=(12.0, 6.0),
        package="",
        takes_dtensors=True,
        captured=lambda seen: (
            _of_torch(seen)
            and bool(seen.options.get("amsgrad"))
            and not seen.options.get("fused")
            and seen.options.get("foreach") is not False
        ),
        ran=lambda found: found.package == "torch" and found.kind in ("adam", "adamw") and not found.fused,
        explored=None,
    ),
)
