"""An optimizer that nobody has: one file, as a new one would stand among gpu_plan.planner.workload.optimizers.kinds."""

from collections.abc import Iterator, Sequence

from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor
from gpu_plan.planner.workload.optimizers.traits import Kept, OptimizerTraits, Scratch, passes


def _state(tensor: LocalTensor, full_embeddings: bool) -> Iterator[Kept]:
    yield Kept("trace", 3 * tensor.nbytes)


def _step(scratch: Scratch, tensors: Sequence[LocalTensor]) -> None:
    scratch.bind("everything", [5 * tensor.nbytes for tensor in tensors])


KINDS = (
    OptimizerTraits(
        name="toy",
        place=99,
        help="nobody's",
        state=_state,
        step=_step,
        traffic=passes(9),
        saved_bytes=(11.0, 5.0),
        package="toylib",
        takes_dtensors=False,
        optim="toy_torch",
        optim_read=("toy_hf",),
        deepspeed=("toyadam",),
        llamafactory_switch="use_toy",
        captured=lambda seen: seen.module.startswith("toylib") and seen.name == "Toyer",
        classes=("Toyer",),
        explored=12,
    ),
)
