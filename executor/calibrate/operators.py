"""Products in the three layouts of a training step, fused attention both ways, memory traffic, small operators."""

from collections.abc import Iterator
from functools import partial

import torch
from torch.nn import functional

from gpu_plan.executor.calibrate.timing import Bounds, seconds_of
from gpu_plan.planner.speed.calibration.record import Fused, Product

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_SHAPES = {
    "cpu": ((32, 64, 64), (64, 128, 128), (128, 256, 256), (256, 512, 512), (512, 1024, 1024), (1024, 1024, 2048)),
    "cuda": (
        (128, 1024, 1024), (512, 2048, 2048), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 4096, 4096),
        (8192, 4096, 14336), (8192, 8192, 8192),
    ),
}  # fmt: skip
"""Tokens, width before and after. Two of neighbouring sizes stand for about the same arithmetic."""
_ATTENTION = {"cpu": (1, 4, 256, 64), "cuda": (2, 32, 4096, 128)}
"""Batch, heads, length, size of a head."""
_ELEMENTS = {"cpu": 2**23, "cuda": 2**28}
_BLOCKS = 24
_OPERATORS_OF_A_BLOCK = 8
"""Of a linear layer and an activation, as a trace counts them: addmm, gelu; gelu backward, two products, the sum of
the bias' gradient, and two gradients put into place."""


def dtypes_of(device: torch.device) -> tuple[str, ...]:
    """Types in which products are measured."""
    if device.type == "cpu":
        return ("float32", "bfloat16")
    return ("bfloat16", "float16", "float32") if torch.cuda.is_bf16_supported() else ("float16", "float32")


def products(device: torch.device, budget: float) -> Iterator[Product]:
    """Each size in the layouts of forward (TN), input gradient (NN) and weight gradient (NT)."""
    shapes = _SHAPES[device.type]
    each = budget / (len(shapes) * len(dtypes_of(device)) * 3)
    for dtype in dtypes_of(device):
        for tokens, before, after in shapes:
            flops = 2.0 * tokens * before * after
            inputs = torch.randn(tokens, before, device=device, dtype=_DTYPES[dtype])
            weight = torch.randn(after, before, device=device, dtype=_DTYPES[dtype])
            gradient = torch.randn(tokens, after, device=device, dtype=_DTYPES[dtype])
            layouts = (
                partial(torch.mm, inputs, weight.t()),
                partial(torch.mm, gradient, weight),
                partial(torch.mm, gradient.t(), inputs),
            )
            times = [seconds_of(call, device, each) for call in layouts]
            slow, usual, fast = max(t[0] for t in times), sum(t[1] for t in times) / 3, min(t[2] for t in times)
            yield Product(dtype=dtype, flops=flops, rate=(flops / slow, flops / usual, flops / fast))


def attention(device: torch.device, budget: float) -> Iterator[Fused]:
    """Causal attention, forward and backward (which takes 2.5 times as many products)."""
    batch, heads, length, size = _ATTENTION[device.type]
    flops = 4.0 * batch * heads * length * length * size / 2
    for dtype in dtypes_of(device):
        made = [
            torch.randn(batch, heads, length, size, device=device, dtype=_DTYPES[dtype], requires_grad=True)
            for _ in range(3)
        ]

        query, key, value = made
        forward = partial(functional.scaled_dot_product_attention, query, key, value, is_causal=True)
        with torch.no_grad():
            ahead = seconds_of(forward, device, budget / 4)
        yield Fused(dtype=dtype, direction="forward", rate=_per_second(flops, ahead))
        out = forward()
        ones = torch.ones_like(out)
        backward = partial(torch.autograd.grad, out, made, ones, retain_graph=True)
        back = seconds_of(backward, device, budget / 4)
        yield Fused(dtype=dtype, direction="backward", rate=_per_second(2.5 * flops, back))


def _per_second(amount: float, seconds: Bounds) -> Bounds:
    slow, usual, fast = seconds
    return amount / slow, amount / usual, amount / fast


def memory(device: torch.device, budget: float) -> Bounds:
    """Bytes per second of an addition: two operands read, one written."""
    one, other, out = (torch.ones(_ELEMENTS[device.type], device=device) for _ in range(3))
    return _per_second(3.0 * one.nbytes, seconds_of(lambda: torch.add(one, other, out=out), device, budget))


def operator_seconds(device: torch.device, budget: float) -> Bounds:
    """Seconds of an operator that computes next to nothing: a training step of many small layers, by their number."""
    layers = [torch.nn.Linear(8, 8, device=device) for _ in range(_BLOCKS)]
    batch = torch.randn(8, 8, device=device)

    def step() -> None:
        hidden = batch
        for layer in layers:
            hidden = functional.gelu(layer(hidden))
        hidden.sum().backward()
        for layer in layers:
            layer.zero_grad(set_to_none=True)

    slow, usual, fast = seconds_of(step, device, budget)
    count = _BLOCKS * _OPERATORS_OF_A_BLOCK
    return slow / count, usual / count, fast / count
