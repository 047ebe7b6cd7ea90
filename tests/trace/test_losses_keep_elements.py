"""The scalar of some losses keeps the storage of every element's loss: as real tensors have it."""

import pytest
import torch
from torch.nn import functional

from gpu_plan.planner.trace.inputs.meta_ops import META_OPS
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile, CudaProfile, KernelProfile

CASES = ("mse_loss", "smooth_l1_loss", "soft_margin_loss", "binary_cross_entropy")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", CASES)
def test_storage_is_that_of_a_real_loss(name: str, reduction: str) -> None:
    given, target = torch.rand(6, 5), torch.rand(6, 5).round()
    real = getattr(functional, name)(given, target, reduction=reduction)
    number = {"none": 0, "mean": 1, "sum": 2}[reduction]
    middle = (None, number) if name == "binary_cross_entropy" else (number,)
    made = META_OPS[getattr(torch.ops.aten, name).default](given.to("meta"), target.to("meta"), *middle)
    assert made.shape == real.shape
    assert made.untyped_storage().nbytes() == real.untyped_storage().nbytes()


@pytest.mark.parametrize("device", [CpuProfile(), CudaProfile()], ids=str)
def test_logsumexp_holds_what_it_sums(device: KernelProfile) -> None:
    rows = torch.empty(3, 7, 32, device="meta", dtype=torch.bfloat16)
    assert device.scratch("logsumexp", (rows, [-1]), [rows.logsumexp(-1)]) == [3 * 7 * 2, 3 * 7 * 32 * 2]
