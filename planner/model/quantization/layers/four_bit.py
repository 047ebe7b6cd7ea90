"""bitsandbytes' 4-bit linear layer as inference runs it: small products without the dequantised copy."""

import ast
import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.model.linear4bit import BLOCK, SCALE_BLOCK, Linear4bitMeta
from gpu_plan.planner.model.quantization.layers.base import entry, packed_mm
from gpu_plan.planner.model.quantization.scheme import Scheme, Target
from gpu_plan.planner.model.source.headers import StoredTensor
from gpu_plan.planner.units import ceil_div

KERNEL = "bitsandbytes autograd/_functions.py: matmul_4bit, backends/cuda/ops.py: gemm_4bit"
FUSED_MOST = 1536
"""Rows above which no fused kernel runs (backends/cuda/ops.py: _gemm_4bit_custom_max_m)."""
FUSED_LEAST = 4
"""Rows up to which one always does (_GEMM_4BIT_CUSTOM_FLOOR_M)."""
STATE_BYTES = 80
"""What a published QuantState's JSON takes, about; it depends on the numbers in it."""


class Inference4bitMeta(Linear4bitMeta):
    """nn/modules.py: Linear4bit. NF4 and FP4 store the same; `quant_storage` only groups the bytes."""

    kernel = KERNEL

    def __init__(self, linear: nn.Module, scheme: Scheme, target: Target, compute_dtype: torch.dtype) -> None:
        self.storage = getattr(torch, scheme.quant_storage)
        self.number = scheme.number
        super().__init__(linear, double_quant=scheme.double_quant, compute_dtype=compute_dtype)
        self.target = target

    def _store(self, numel: int) -> None:
        """backends/cuda/ops.py: quantize_4bit, for any quant_storage."""
        super()._store(numel)
        if self.storage is not torch.uint8:
            shape = ((numel + 1) // (2 * self.storage.itemsize), 1)
            self.weight = nn.Parameter(torch.empty(shape, dtype=self.storage, device="meta"), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] to [..., out_features], in the dtype of `x`."""
        rows = x.numel() // self.in_features
        trained = torch.is_grad_enabled() and x.requires_grad
        if trained or not self._fused(rows):
            return super().forward(x)
        given = x.dtype
        bias = [] if self.bias is None else [self.bias.to(self.compute_dtype)]
        stored = [self.weight, *bias, *self.buffers(recurse=False)]
        return packed_mm(x.to(self.compute_dtype), stored, self.out_features, self.compute_dtype).to(given)

    def _fused(self, rows: int) -> bool:
        """backends/cuda/ops.py: the dispatch of `bitsandbytes::gemm_4bit`."""
        if rows > FUSED_MOST or self.in_features % BLOCK or self.target.capability is None:
            return False
        chooses = _heuristic(self.target.capability, self.target.sm_count)
        return chooses(rows, self.out_features, self.in_features, self.compute_dtype)

    def checkpoint(self) -> dict[str, StoredTensor]:
        """functional.py: QuantState.as_dict(packed=True), beside the weight."""
        held: dict[str, StoredTensor] = {"weight": entry(self.weight)}
        held["weight.absmax"] = ((self.scales,), "uint8" if self.double_quant else "float32")
        held["weight.quant_map"] = ((16,), "float32")
        if self.double_quant:
            held["weight.nested_absmax"] = ((ceil_div(self.scales, SCALE_BLOCK),), "float32")
            held["weight.nested_quant_map"] = ((256,), "float32")
        held[f"weight.quant_state.bitsandbytes__{self.number}"] = ((self._state_length(),), "uint8")
        if self.bias is not None:
            held["bias"] = entry(self.bias)
        return held

    def _state_length(self) -> int:
        """utils.py: pack_dict_to_tensor of what is no tensor."""
        import json

        shape = [self.out_features, self.in_features]
        state: dict[str, Any] = {"quant_type": self.number, "blocksize": BLOCK}
        state |= {"dtype": str(self.compute_dtype).removeprefix("torch."), "shape": shape}
        if self.double_quant:
            state |= {"nested_blocksize": SCALE_BLOCK, "nested_dtype": "float32", "nested_offset": 0.04123456789012345}
        return len(json.dumps(state))


Chooses = Callable[[int, int, int, torch.dtype], bool]


@functools.cache
def _heuristic(capability: tuple[int, int], sm_count: int) -> Chooses:
    """The installed library's own choice for that GPU, as (rows, out, in, dtype); without it, the copy is made.

    The module itself cannot be imported without CUDA, so its one function is read and run apart.
    """
    found = _source_of("_gemm_4bit_use_custom_cuda")
    if found is None:
        return lambda rows, out, inner, dtype: rows <= FUSED_LEAST
    names: dict[str, Any] = {
        "torch": torch,
        "functools": SimpleNamespace(cache=lambda function: function),
        "_GEMM_4BIT_CUSTOM_FLOOR_M": FUSED_LEAST,
        "_gpu_dispatch_props": lambda index: (sm_count, *capability),
    }
    exec(compile(found, "bitsandbytes/backends/cuda/ops.py", "exec"), names)
    function = names["_gemm_4bit_use_custom_cuda"]
    return lambda rows, out, inner, dtype: bool(function(0, dtype, rows, out, inner))


def _source_of(function: str) -> ast.Module | None:
    spec = importlib.util.find_spec("bitsandbytes")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "backends" / "cuda" / "ops.py"
    if not path.is_file():
        return None
    tree = ast.parse(path.read_text())
    found: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    return ast.Module(body=found, type_ignores=[]) if found else None
