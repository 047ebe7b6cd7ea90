"""Figures that no CPU run can show, held by value against the sources that they are read in.

Headers and Python files of what is installed are read as text: nothing is imported for it. What stands in C++ or CUDA
sources that no package ships is held by its value alone, beside the file that has it.
"""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.memory import overheads, schedule
from gpu_plan.planner.memory.allocator import settings
from gpu_plan.planner.memory.allocator.heap import Pool
from gpu_plan.planner.memory.optimizer import clipping
from gpu_plan.planner.strategy import buckets
from gpu_plan.planner.strategy.base import workspace_bytes
from gpu_plan.planner.strategy.fsdp1 import flat, queues, wrap
from gpu_plan.planner.strategy.zero.stage3 import nvme
from gpu_plan.planner.strategy.zero.stage3 import queues as zero_queues
from gpu_plan.planner.strategy.zero.stage12 import flat as zero_flat
from gpu_plan.planner.units import MIB

_NUMBER = r"((?:[\d_.e]+(?: \* )?)+)"


def installed(file: str) -> str:
    """Text of an installed project's file, `torch/include/...`."""
    project, _, rest = file.partition("/")
    spec = find_spec(project)
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / rest).read_text(encoding="utf-8")


def value(file: str, before: str) -> int:
    """The number behind `before` in a file: `25 * 1024 * 1024`, `1e9`."""
    found = re.search(before + _NUMBER, installed(file))
    assert found is not None, f"{file}: {before} is gone: read it again"
    result = 1.0
    for factor in found[1].strip().split(" * "):
        result *= float(factor)
    return int(result)


ALLOCATOR = "torch/include/c10/core/AllocatorConfig.h"
REDUCER = "torch/include/torch/csrc/distributed/c10d/reducer.hpp"
ZERO = "deepspeed/runtime/zero/config.py"
SOURCES = {
    "smallest block": (lambda: settings.MIN_BLOCK, ALLOCATOR, r"kMinBlockSize = "),
    "largest small request": (lambda: settings.SMALL_LIMIT, ALLOCATOR, r"kSmallSize = "),
    "segment of small blocks": (lambda: settings.SMALL_SEGMENT, ALLOCATOR, r"kSmallBuffer = "),
    "smallest request with a segment of its own": (lambda: settings.MIN_LARGE, ALLOCATOR, r"kMinLargeAlloc = "),
    "rounding of large segments": (lambda: settings.LARGE_ROUNDING, ALLOCATOR, r"kRoundLarge = "),
    "large segment": (lambda: settings.AllocatorSettings().large_segment_size, ALLOCATOR, r"large_segment_size_\{"),
    "DDP's first bucket": (lambda: buckets.FIRST_BUCKET, REDUCER, r"kDefaultFirstBucketBytes = "),
    "DDP's other buckets": (lambda: buckets.BUCKET, REDUCER, r"kDefaultBucketBytesCap = "),
    "FSDP1's broadcasts": (
        lambda: wrap._BUCKET,
        "torch/distributed/fsdp/_init_utils.py",
        r"PARAM_BROADCAST_BUCKET_SIZE = ",
    ),
    "FSDP1's alignment": (lambda: flat._ALIGNMENT, "torch/distributed/fsdp/_flat_param.py", r"ALIGNMENT = "),
    "FSDP1's gathers in flight": (
        lambda: queues.MAX_INFLIGHT_ALL_GATHERS,
        "torch/distributed/fsdp/_limiter_utils.py",
        r"_max_num_inflight_all_gathers = ",
    ),
    "ZeRO's alignment": (
        lambda: zero_flat._ALIGNMENT,
        "deepspeed/runtime/zero/stage_1_and_2.py",
        r"nccl_start_alignment_factor = ",
    ),
    "ZeRO-3's open reductions": (
        lambda: zero_queues.MAX_OPEN_REDUCTIONS,
        "deepspeed/runtime/zero/stage3.py",
        r"max_param_reduce_events: int = ",
    ),
    "ZeRO-3's swap buffers": (
        lambda: nvme.PARAMETER_BUFFERS,
        "deepspeed/runtime/zero/offload_config.py",
        r"class DeepSpeedZeroOffloadParamConfig[\s\S]*?buffer_count: int = Field\(",
    ),
    "elements of a swap buffer": (
        lambda: nvme._BUFFER_ELEMENTS,
        "deepspeed/runtime/zero/offload_config.py",
        r"buffer_size: int = Field\(pp_int\(",
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_constant_is_the_installed_sources(name: str) -> None:
    ours, file, before = SOURCES[name]
    assert ours() == value(file, before)


@pytest.mark.parametrize(
    ("capability", "size"),
    [
        ((7, 0), 8519680),  # V100; :4096:2:16:8 in KiB: 2 x 4 MiB + 8 x 16 KiB
        ((7, 5), 8519680),
        ((8, 0), 8519680),
        ((8, 6), 8519680),
        ((8, 9), 8519680),
        ((9, 0), 33554432),
        ((10, 0), 33554432),
        ((12, 0), 33554432),
        (None, 0),
    ],
)
def test_cublas_workspaces_by_capability(capability: tuple[int, int] | None, size: int) -> None:
    """pytorch aten/src/ATen/cuda/CublasHandlePool.cpp: getChosenWorkspaceSize (torch 2.13)."""
    assert workspace_bytes(capability) == size


def test_a_large_block_keeps_what_is_left_of_at_most_one_mib() -> None:
    """c10/cuda/CUDACachingAllocator.cpp: should_split, remaining > kSmallSize; under expandable segments every rest."""
    assert Pool(0, False, settings.AllocatorSettings()).least_rest == 2**20 + 1
    assert Pool(0, True, settings.AllocatorSettings()).least_rest == 512
    assert Pool(0, False, settings.AllocatorSettings(expandable_segments=True)).least_rest == 512


def test_what_stands_in_cuda_sources_alone() -> None:
    # aten/src/ATen/native/cuda/MultiTensorApply.cuh: kChunkSize, of the norms of foreach tensors, in fp32.
    assert (clipping._NORM_CHUNK, clipping._SCALAR) == (65536, 4)
    # The CUDA driver's launch queue; seen as the point where a launch waits.
    assert schedule.MAX_QUEUED_LAUNCHES == 1024
    # c10/cuda/CUDAAllocatorConfig: 20 MiB may be wasted on a block that is not split.
    assert settings.AllocatorSettings().non_split_rounding == 20 * 2**20


@pytest.mark.parametrize(
    ("gpus", "low", "expected", "high"),
    [
        # A ring's connection of 24 channels, 12 MiB each, PCIe's 2 at least; others' trees at most. Beside: 256 MiB.
        ("2xA100-40GB", 24 * 12 + 242, 24 * 12 + 256, 24 * 12 + 264),
        ("4xA100-40GB", 24 * 12 + 242, 2 * 24 * 12 + 256, 3 * 24 * 12 + 264),
        ("8xA100-40GB", 24 * 12 + 242, 2 * 24 * 12 + 256, 5 * 24 * 12 + 264),
        # From Hopper on NVLink SHARP's 256 MiB, on four GPUs and more; beside connections NCCL's code at least.
        ("2xH100", 16 * 12 + 60, 16 * 12 + 60, 16 * 12 + 306),
        ("4xH100", 16 * 12 + 60, 2 * 16 * 12 + 256 + 60, 3 * 16 * 12 + 256 + 306),
        ("8xH100", 16 * 12 + 60, 2 * 16 * 12 + 256 + 60, 5 * 16 * 12 + 256 + 306),
        ("8xB200", 16 * 12 + 92, 2 * 16 * 12 + 256 + 92, 5 * 16 * 12 + 256 + 303),
        # PCIe: two channels, 32 at most.
        ("2xT4", 2 * 12 + 41, 2 * 12 + 41, 32 * 12 + 264),
        ("1xH100", 0, 0, 0),
        ("2xcpu", 0, 0, 0),
    ],
)
def test_buffers_of_nccl(gpus: str, low: int, expected: int, high: int) -> None:
    """NCCL 2.30 transport/p2p.cc, graph/connect.cc, nvls.cc, init.cc, and its wheels."""
    term = overheads.nccl(parse_cluster(gpus))
    assert [size // MIB for size in (term.low, term.expected, term.high)] == [low, expected, high]
