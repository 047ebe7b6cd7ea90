"""CUDA's autocast, which a machine without CUDA silently leaves out.

Mirrors pytorch aten/src/ATen/autocast_mode.cpp and autocast_mode.h: the lists of operators by policy, and
cached_cast, which keeps the 16-bit copy of an fp32 leaf weight until the outermost autocast ends.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F

LOWER_PRECISION = (
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution conv_tbc prelu "
    "addmm addmv addr matmul __matmul__ __rmatmul__ mm mv linear addbmm baddbmm bmm chain_matmul einsum "
    "scaled_dot_product_attention"
)
FLOAT32 = (
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow __pow__ __rpow__ "
    "softplus layer_norm native_layer_norm group_norm norm nuclear_norm cosine_similarity poisson_nll_loss "
    "cosine_embedding_loss nll_loss nll_loss2d cross_entropy_loss hinge_embedding_loss kl_div l1_loss smooth_l1_loss "
    "huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss "
    "multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d "
    "upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d "
    "upsample_bicubic2d"
)
FLOAT32_OUTPUT = "prod softmax log_softmax cumprod cumsum sum linalg_vector_norm linalg_matrix_norm"
PROMOTE = "addcdiv addcmul atan2 bilinear cross dot index_put scatter_add tensordot vdot cat stack"

Handler = Callable[["Autocast", Any, tuple[Any, ...], dict[str, Any]], Any]


class Autocast:
    """State of one autocast region that starts and ends with the model's forward."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.enabled = False
        self.caching = True
        """Off while a graph is captured (pytorch torch/fx/experimental/proxy_tensor.py: disable_autocast_cache)."""
        self._nesting = 0
        self._copies: dict[int, torch.Tensor] = {}

    def enter(self, enabled: bool) -> bool:
        """Starts a region; returns what `leave` needs to restore."""
        before = self.enabled
        self.enabled = enabled
        self._nesting += 1
        return before

    def leave(self, before: bool) -> None:
        """Ends a region; the end of the outermost one drops the cached weight copies."""
        self._nesting -= 1
        self.enabled = before
        if self._nesting == 0:
            self._copies.clear()

    def lower(self, value: Any) -> Any:
        """cached_cast to the 16-bit type."""
        if isinstance(value, (list, tuple)):
            return type(value)(self.lower(item) for item in value)
        if not _eligible(value) or value.dtype is self.dtype:
            return value
        cacheable = value.dtype is torch.float32 and value.requires_grad and value.is_leaf and not value._is_view()
        if not cacheable or not self.caching:
            return value.to(self.dtype)
        copy = self._copies.get(id(value))
        if copy is None:
            copy = value.to(self.dtype)
            self._copies[id(value)] = copy
        return copy


def _eligible(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.dtype is not torch.float64
        and value.device.type == "meta"
    )


def _raise(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_raise(item) for item in value)
    if _eligible(value) and value.dtype is not torch.float32:
        return value.float()
    return value


def _run_lower(state: Autocast, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    lowered = tuple(state.lower(arg) for arg in args)
    return func(*lowered, **{key: state.lower(value) for key, value in kwargs.items()})


def _run_float32(state: Autocast, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*(_raise(arg) for arg in args), **{key: _raise(value) for key, value in kwargs.items()})


def _run_float32_output(state: Autocast, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    has_dtype = kwargs.get("dtype") is not None or any(isinstance(arg, torch.dtype) for arg in args)
    if args and _eligible(args[0]) and args[0].dtype is not torch.float32 and not has_dtype:
        kwargs = {**kwargs, "dtype": torch.float32}
    return func(*args, **kwargs)


def _run_promote(state: Autocast, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    flat = [item for arg in (*args, *kwargs.values()) for item in (arg if isinstance(arg, (list, tuple)) else (arg,))]
    widest = any(_eligible(item) and item.dtype is torch.float32 for item in flat)
    if not widest:
        return func(*args, **kwargs)
    return _run_float32(state, func, args, kwargs)


def _callables(names: Iterable[str]) -> set[Any]:
    homes = (torch, torch.Tensor, F, torch._C._nn, torch._C._VariableFunctions, torch.linalg, torch._VF)
    return {getattr(home, name) for name in names for home in homes if hasattr(home, name)}


def autocast_handlers() -> dict[Any, Handler]:
    """Python-visible torch callables by the policy that autocast applies to them."""
    handlers: dict[Any, Handler] = {}
    for names, handler in (
        (LOWER_PRECISION, _run_lower),
        (FLOAT32, _run_float32),
        (FLOAT32_OUTPUT, _run_float32_output),
        (PROMOTE, _run_promote),
    ):
        for function in _callables(names.split()):
            handlers[function] = handler
    return handlers
