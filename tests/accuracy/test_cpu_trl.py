"""TRL's tiled log-probabilities as they are mirrored, against the library's own function, event by event.

Its Triton kernels write over the tile in place and fold into statistics that stand already: on the CPU nothing
stands for them, nor for the product that CUDA adds to fp32 sums without a temporary. In fp32: oneDNN's bf16 products
take scratch on a CPU that a GPU has not.
"""

from typing import Any
from unittest import mock

import pytest
import torch

from gpu_plan.planner.trace.kernels.stack_losses.trl import _Tiled
from tests.support.cpu_reference import measure


@pytest.fixture(scope="module")
def chunked() -> Any:
    """The library's module."""
    pytest.importorskip("trl.trainer.utils")  # else the function's first backward imports it, and tensors with it
    return pytest.importorskip("trl.kernels.chunked_logprob", reason="the reference is the library itself")


class _Nothing:
    def __getitem__(self, grid: Any) -> Any:
        return lambda *_, **__: None


def _nothing(*_: Any, **__: Any) -> None:
    """No Mock, which would keep what it is called with."""


def stream(body: Any) -> list[int]:
    """Signed bytes of what is taken and given back, but for Python's numbers, which CUDA passes as arguments."""
    return [change.nbytes for change in measure(body).changes if abs(change.nbytes) > 16]


def inputs(tokens: int, width: int, words: int, *, trained: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, width, generator=generator).requires_grad_()
    weight = torch.randn(words, width, generator=generator).requires_grad_(trained)
    return hidden, weight, torch.randint(0, words, (tokens,), generator=generator)


@pytest.mark.parametrize(
    ("tokens", "words", "trained"),
    [(64, 300, False), (64, 300, True), pytest.param(4200, 33000, True, marks=pytest.mark.slow)],
)
def test_every_allocation_and_free_in_order(chunked: Any, tokens: int, words: int, trained: bool) -> None:
    def ours() -> Any:
        hidden, weight, targets = given
        log_probs, entropy, is_top1 = _Tiled.apply(hidden, weight, None, targets)
        log_probs.sum().backward()
        return log_probs, entropy, is_top1

    def theirs() -> Any:
        hidden, weight, targets = given
        log_probs, entropy, _, _, is_top1 = chunked.ChunkedLogProbFunction.apply(
            hidden, weight, None, targets, 1.0, 32768, None, 1.0, ("log_probs", "entropy", "is_top1")
        )
        log_probs.sum().backward()
        return log_probs, entropy, is_top1

    given = inputs(tokens, 32, words, trained=trained)
    found = stream(ours)
    given = inputs(tokens, 32, words, trained=trained)
    with (
        mock.patch.object(chunked, "_use_triton", return_value=True),
        mock.patch.object(chunked, "_forward_kernel", _Nothing()),
        mock.patch.object(chunked, "_backward_kernel", _Nothing()),
        mock.patch.object(chunked, "triton", mock.Mock(), create=True),
        mock.patch.object(chunked, "_addmm_fp32", _nothing),
    ):
        expected = stream(theirs)
    assert found == expected
