"""Gradients that ranks share are summed once for each pass, also where several are accumulated."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from transformers.distributed import tensor_parallel

from gpu_plan.executor.runner.parallel.sums import sum_each_pass

MESH = SimpleNamespace(get_group=lambda: None)


@pytest.fixture
def two_equal_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, group=None: tensor.mul_(2))


def accumulated(passes: int) -> float:
    """The gradient of a weight of one, of so many passes that each give it 3."""
    norm = torch.nn.Module()
    norm.weight = torch.nn.Parameter(torch.ones(1))
    norm.forward = lambda value: norm.weight * value
    spread = tensor_parallel.ReplicatedWithGradAllReduce().install_forward(norm, MESH)
    for _ in range(passes):
        spread.forward(torch.tensor([3.0])).backward()
    assert norm.weight.grad is not None
    return float(norm.weight.grad)


def test_each_pass_is_summed_once(monkeypatch: pytest.MonkeyPatch, two_equal_ranks: None) -> None:
    own = tensor_parallel.ReplicatedWithGradAllReduce.install_forward
    assert (accumulated(1), accumulated(2)) == (6.0, 18.0), (
        "transformers sums the first pass twice: is it mended there?"
    )
    monkeypatch.setattr(tensor_parallel.ReplicatedWithGradAllReduce, "install_forward", own)
    sum_each_pass(tensor_parallel)
    assert [accumulated(passes) for passes in (1, 2, 3)] == [6.0, 12.0, 18.0]
