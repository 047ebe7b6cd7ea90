"""Sequence kernels as the GPU runs them: one fused kernel where transformers' fallback loops over tokens in Python.

transformers picks `mamba_ssm`, `causal_conv1d` and `fla` kernels where they are installed
(integrations/hub_kernels.py: use_kernel_func_from_hub_with_fallback). Here none is, so the fallbacks would be traced:
other memory, and up to a hundred thousand operators. For the time of a step, the functions are replaced by autograd
functions that allocate on meta what the kernels allocate, save what they save, and compute nothing.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from torch import nn

from gpu_plan.planner.trace.kernels.scans import delta as scans_delta
from gpu_plan.planner.trace.kernels.scans import mamba as scans_mamba
from gpu_plan.planner.trace.kernels.scans import mamba2 as scans_mamba2
from gpu_plan.planner.trace.kernels.scans import recurrent as scans_recurrent
from gpu_plan.planner.trace.kernels.scans.experts import evenly_routed
from gpu_plan.planner.trace.kernels.scans.pooling import unpadded

_FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "causal_conv1d_fn": (scans_mamba.causal_conv1d, "causal_conv1d"),
    "mamba_inner_fn": (scans_mamba.mamba_inner, "mamba_ssm"),
    "mamba_selective_scan": (scans_mamba.selective_scan, "mamba_ssm"),
    "mamba2_split_conv1d_scan_combined": (scans_mamba2.split_conv1d_scan_combined, "mamba_ssm"),
    "mamba_selective_state_update": (scans_mamba.selective_state_update, "mamba_ssm"),
    "torch_chunk_gated_delta_rule": (scans_delta.chunk_gated_delta_rule, "fla"),
    "torch_recurrent_gated_delta_rule": (scans_delta.recurrent_gated_delta_rule, "fla"),
}
"""Name in a modeling module -> (stand-in, package whose kernel it mirrors)."""

_METHODS: dict[str, tuple[str, Callable[..., Any]]] = {
    "RecurrentGemmaRglru": ("_rnn_scan", scans_recurrent.rnn_scan),
}
"""Class name -> (method, stand-in) where no package has a kernel and the Python loop really runs."""

_WRAPPED: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "DbrxExperts": ("forward", evenly_routed, "tokens are routed evenly over the experts"),
    "Gemma4VisionPooler": ("_avg_pool_by_positions", unpadded, "images have no padding patches"),
}
"""Class name -> (method, wrapper of it, what that assumes) where a shape would depend on values of full size.

DBRX alone of the catalog's experts has no `use_experts_implementation`: the others run as one grouped product.
"""


@contextlib.contextmanager
def fused_scans(model: nn.Module) -> Iterator[list[str]]:
    """Within, `model` calls the stand-ins; yields the assumptions that they rest on, one line each."""
    classes = {type(module) for module in model.modules()}
    homes = {sys.modules[kind.__module__] for kind in classes if kind.__module__.startswith("transformers.models.")}
    packages: set[str] = set()
    assumptions: list[str] = []
    with contextlib.ExitStack() as stack:
        for home in sorted(homes, key=lambda module: module.__name__):
            for name, (stand_in, package) in _FUNCTIONS.items():
                if hasattr(home, name):
                    stack.enter_context(mock.patch.object(home, name, stand_in))
                    packages.add(package)
        for kind in classes:
            if kind.__name__ in _METHODS:
                method, stand_in = _METHODS[kind.__name__]
                stack.enter_context(mock.patch.object(kind, method, stand_in))
                assumptions.append(f"{kind.__name__}'s loop over tokens is counted as a whole")
            if kind.__name__ in _WRAPPED:
                method, wrap, assumes = _WRAPPED[kind.__name__]
                stack.enter_context(mock.patch.object(kind, method, wrap(getattr(kind, method))))
                assumptions.append(assumes)
        if packages:
            assumptions.append(f"the fused kernels of {', '.join(sorted(packages))} are installed")
        yield assumptions
