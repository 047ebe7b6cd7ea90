"""The planner's optimizer rules against what the real optimizers allocate, byte for byte.

Sizes are those requested: the CPU allocator hands out what is asked for. Scalars of at most 16 bytes are left out on
both sides (on the CPU every Python number in an operator becomes a tensor).
"""

import math

import numpy as np
import pytest
import torch

from gpu_plan.planner.memory.optimizer.steps import place_state, place_step, state_bytes
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.trace.events import Category
from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor, Role
from gpu_plan.planner.workload.optimizers.registry import optimizers
from gpu_plan.planner.workload.training import Optimizer
from tests.support.optimizer_reference import OptimizerReference, optimizer_reference
from tests.support.replay_cpu import counted
from tests.support.tiny_trace import tiny_trace

Shapes = tuple[tuple[int, ...], ...]

GROWING: Shapes = ((16,), (64, 64), (128, 64), (256, 96))
FALLING: Shapes = ((256, 96), (128, 64), (64, 128), (48,))
MIXED: Shapes = ((96, 64), (33,), (7, 40, 24), (200, 10), (64, 96), (31, 17))
MATRICES: Shapes = ((60, 40), (48, 48), (20, 120), (120, 20))
"""Below 60 × 60 elements, where the CPU copies a transposed matrix without a buffer."""
CONVOLUTION: Shapes = ((8, 4, 5, 5), (64,), (96, 32))

TORCH = (
    Optimizer("adamw"),
    Optimizer("adamw-forloop"),
    Optimizer("adamw-fused"),
    Optimizer("sgd"),
    Optimizer("sgd-momentum"),
    Optimizer("adafactor"),
    Optimizer("adamw-amsgrad"),
    Optimizer("sgd-l2"),
    Optimizer("sgd-momentum-l2"),
    Optimizer("rmsprop"),
    Optimizer("rmsprop-l2"),
    Optimizer("rmsprop-momentum"),
    Optimizer("rmsprop-momentum-l2"),
    Optimizer("adagrad"),
    Optimizer("adadelta"),
    Optimizer("adadelta-l2"),
    Optimizer("nadam"),
    Optimizer("nadam-l2"),
    Optimizer("radam"),
    Optimizer("adamax"),
    Optimizer("rprop"),
    Optimizer("asgd"),
    Optimizer("adafactor-torch"),
    *(Optimizer(name) for name in optimizers() if name.endswith("-forloop") and name != "adamw-forloop"),
)


def planned(optimizer: Optimizer, shapes: Shapes, dtype: str) -> OptimizerReference:
    """The same figures from the planner's rules alone."""
    tensors = [
        LocalTensor(name=f"p{i}", numel=math.prod(shape), dtype=dtype, shape=shape) for i, shape in enumerate(shapes)
    ]
    builder = StreamBuilder(tiny_trace([(2, 2)]), 1)
    place_state(builder, optimizer, tensors)
    for iteration in range(2):
        place_step(builder, iteration, optimizer, tensors)
    stream = builder.build()
    sizes = counted(stream.requested(1))
    own = np.arange(len(sizes)) >= stream.trace.num_tensors * stream.num_passes + 2 * len(stream.trace.inputs)
    changes = stream.event_sign * np.where(own, sizes, 0)[stream.event_tensor]
    live = np.concatenate([[0], np.cumsum(changes)])
    first, second = (int((stream.event_segment <= segment).sum()) for segment in stream.step_segments)
    state = int(live[first])
    return OptimizerReference(
        state_bytes=state,
        first_peak=int(live[: first + 1].max()),
        second_temporary=int(live[first : second + 1].max()) - state,
        second_left=int(live[second]) - state,
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "shapes",
    [
        MIXED,
        *(pytest.param(shapes, marks=pytest.mark.slow) for shapes in (GROWING, FALLING, CONVOLUTION)),
    ],
    ids=["mixed", "growing", "falling", "conv"],
)
@pytest.mark.parametrize("optimizer", TORCH, ids=str)
def test_state_and_second_step_are_exact(optimizer: Optimizer, shapes: Shapes, dtype: str) -> None:
    real = optimizer_reference(optimizer, shapes, dtype=getattr(torch, dtype))
    ours = planned(optimizer, shapes, dtype)
    assert (ours.state_bytes, ours.second_left) == (real.state_bytes, real.second_left)
    if (optimizer, dtype) != (Optimizer("adafactor-torch"), "bfloat16"):  # a CPU's bmm and mean make fp32 copies
        assert ours.second_temporary == real.second_temporary


@pytest.mark.parametrize("optimizer", [Optimizer("sgd"), Optimizer("adamw"), Optimizer("nadam")], ids=str)
def test_gradients_that_are_turned_round_are_a_list_of_copies(optimizer: Optimizer) -> None:
    """What a script's `maximize=True` is planned as."""
    name = {"sgd": "sgd-l2", "nadam": "nadam-l2"}.get(optimizer, "adamw")
    real, ours = optimizer_reference(optimizer, MIXED, maximize=True), planned(Optimizer(name), MIXED, "float32")
    assert (ours.state_bytes, ours.second_temporary) == (real.state_bytes, real.second_temporary)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("optimizer", "tables"),
    [
        (Optimizer("adamw-8bit"), 2),
        (Optimizer("lion"), 0),
        (Optimizer("lion-8bit"), 1),
        (Optimizer("adamw-bnb"), 0),
        (Optimizer("ademamix"), 0),
        (Optimizer("ademamix-8bit"), 2),
        (Optimizer("rmsprop-bnb"), 0),
        (Optimizer("rmsprop-8bit"), 1),
        (Optimizer("adagrad-bnb"), 0),
        (Optimizer("adagrad-8bit"), 1),
        (Optimizer("sgd-bnb"), 0),
        (Optimizer("sgd-8bit"), 1),
        (Optimizer("lamb"), 0),
        (Optimizer("lamb-8bit"), 2),
        (Optimizer("lars"), 0),
        (Optimizer("lars-8bit"), 1),
    ],
)
def test_state_of_bitsandbytes_is_exact(optimizer: Optimizer, tables: int, dtype: str) -> None:
    """Only what is kept: its CPU kernels take temporaries that its CUDA kernels do not.

    Its tables are made on the host and moved to a GPU: beside a CPU's parameters nothing is added.
    """
    real = optimizer_reference(optimizer, MIXED, dtype=getattr(torch, dtype))
    assert planned(optimizer, MIXED, dtype).state_bytes == real.state_bytes + tables * 1024
    assert real.second_left == 0


@pytest.mark.parametrize("optimizer", TORCH, ids=str)
def test_first_step_peaks_no_higher_than_said(optimizer: Optimizer) -> None:
    """State is placed before the step; Adafactor, and SGD's loop over clones of what it copies, make it parameter by
    parameter and peak at most as high."""
    real, ours = optimizer_reference(optimizer, MIXED), planned(optimizer, MIXED, "float32")
    assert real.first_peak <= ours.first_peak <= ours.state_bytes + ours.second_temporary
    if optimizer not in (Optimizer("adafactor"), Optimizer("sgd-momentum-l2-forloop")):
        assert real.first_peak == ours.first_peak


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shapes", [MATRICES, MATRICES[::-1]], ids=["falling", "growing"])
def test_muon_is_exact(shapes: Shapes, dtype: str) -> None:
    """oneDNN's packing buffers for bf16 products have no counterpart on a GPU: it is switched off."""
    with torch.backends.mkldnn.flags(enabled=False):
        real = optimizer_reference(Optimizer("muon"), shapes, dtype=getattr(torch, dtype))
    assert planned(Optimizer("muon"), shapes, dtype) == real


def test_muon_leaves_embeddings_and_vectors_to_adamw() -> None:
    tensors = [
        LocalTensor(name="hidden", numel=600, dtype="float32", shape=(20, 30)),
        LocalTensor(name="embedding", numel=600, dtype="float32", shape=(20, 30), role=Role.EMBEDDING),
        LocalTensor(name="head", numel=600, dtype="float32", shape=(20, 30), role=Role.HEAD),
        LocalTensor(name="experts", numel=600, dtype="float32", shape=(2, 10, 30)),
        LocalTensor(name="norm", numel=30, dtype="float32", shape=(30,)),
    ]
    assert state_bytes(Optimizer("muon"), tensors) == 4 * (600 + 2 * (3 * 600 + 30))


def _eight_bit(numel: int, **changes: Role) -> LocalTensor:
    return LocalTensor(name="w", numel=numel, dtype="bfloat16", **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("numel", "expected"),
    [
        (4095, 8 * 4095),
        (4096, 2 * 4096 + 2 * 4 * 16),
        (4097, 2 * 4097 + 2 * 4 * 17),
        (1_000_000, 2 * 1_000_000 + 2 * 4 * 3907),
    ],
)
def test_8_bit_state_as_bitsandbytes_makes_it(numel: int, expected: int) -> None:
    assert state_bytes(Optimizer("adamw-8bit"), [_eight_bit(numel)]) == expected


def test_8_bit_embeddings_keep_32_bit_state_under_the_trainer() -> None:
    embedding = [_eight_bit(8192, role=Role.EMBEDDING)]
    assert state_bytes(Optimizer("adamw-8bit"), embedding) == 2 * 8192 + 2 * 4 * 32
    assert state_bytes(Optimizer("adamw-8bit"), embedding, full_embeddings=True) == 8 * 8192


def test_paged_state_leaves_only_block_maxima_and_small_tensors_with_the_allocator() -> None:
    tensors = [_eight_bit(100_000), _eight_bit(99_999), _eight_bit(64)]
    builder = StreamBuilder(tiny_trace([(2, 2)]), 1)
    place_state(builder, Optimizer("paged-adamw-8bit"), tensors)
    stream = builder.build()
    state = [
        int(size)
        for size, category in zip(stream.requested(1), stream.category, strict=True)
        if category == list(Category).index(Category.OPTIMIZER_STATE)
    ]
    maps, large, middle, small = 2 * 1024, 2 * 4 * 391, 2 * 99_999 + 2 * 4 * 391, 8 * 64
    assert sum(state) == maps + large + middle + small


@pytest.mark.parametrize(
    ("optimizer", "state", "temporary"),
    [
        # lion_pytorch: a clone of the moment and the sum beside it, of the largest parameter
        ("lion-pytorch", 1000 + 600, 2 * 1000),
        ("adamw-schedule-free", 2 * 1600, 1600),
        ("radam-schedule-free", 2 * 1600, 1600),
        ("sgd-schedule-free", 1600, 0),
    ],
)
def test_optimizers_of_packages_that_are_not_installed_here(optimizer: str, state: int, temporary: int) -> None:
    """Bytes of two steps of lion-pytorch 0.2.5 and of schedulefree 1.4.1 (RAdam: eight) on a CPU."""
    ours = planned(Optimizer(optimizer), ((250,), (10, 15)), "float32")
    assert (ours.state_bytes, ours.second_temporary, ours.second_left) == (state, temporary, 0)
