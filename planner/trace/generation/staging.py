"""One stage of a pipeline: transformers' own split, with nothing sent.

transformers distributed/pipeline_parallel.py: apply_pipeline_parallelism leaves a rank its run of layers, the embedding
on the first and norm and head on the last; pipeline_parallel_naive_forward receives hidden states, sends them on, and
gives every rank the last one's logits.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn

from gpu_plan.planner.model.quantization.layers.packed_int import PackedLinear
from gpu_plan.planner.trace.parallel.errors import CannotSplitError


def check_stages(model: Any, degree: int) -> None:
    """CannotSplitError, in one line, where the whole `model` cannot be cut into that many stages.

    So are models without a plain list of layers under their base model, and weights stored otherwise than the model
    computes: a stage receives hidden states in the type of its first parameter (pipeline_parallel_naive_forward), which
    a weight of bytes or float8 would ruin.
    """
    base = getattr(model, getattr(model, "base_model_prefix", ""), None)
    layers = getattr(base, "layers", None)
    name = type(model).__name__
    if layers is None or not all(hasattr(base, part) for part in ("embed_tokens", "norm")):
        raise CannotSplitError(f"{name} has no plain list of layers to cut into stages")
    if len(layers) < degree:
        raise CannotSplitError(f"{name} has {len(layers)} layers, fewer than {degree} stages")
    computes = model.get_input_embeddings().weight.dtype
    each = len(layers) // degree  # transformers distributed/pipeline_parallel.py: layer_range_for_rank
    for rank in range(1, degree):
        received_as = _first_type(layers[rank * each])
        if received_as != computes:
            raise CannotSplitError(
                f"{name} cannot be cut into stages with weights stored as {str(received_as).removeprefix('torch.')}:"
                " transformers receives hidden states in the type of a stage's first parameter"
            )


def _first_type(layer: nn.Module) -> torch.dtype:
    for module in layer.modules():
        if isinstance(module, PackedLinear):
            if module.registered is not None:
                return module.registered
            continue  # the real class holds buffers, its bias too
        own = dict(module.named_parameters(recurse=False))
        if own:
            # A layer registers its weight before its bias; the copies on the meta device may not.
            return own.get("weight", next(iter(own.values()))).dtype
    raise CannotSplitError(f"{type(layer).__name__} has no parameters to tell the type of hidden states by")


def stage(model: Any, degree: int) -> None:
    """Leaves a rank's stage of `degree` of `model`, in place, within `sharding.ranks(degree, rank)`."""
    from torch.distributed.device_mesh import init_device_mesh
    from transformers.distributed.pipeline_parallel import apply_pipeline_parallelism

    mesh = init_device_mesh("cpu", (degree,), mesh_dim_names=("pp",))
    apply_pipeline_parallelism(model, mesh)


@contextlib.contextmanager
def received(model: Any) -> Iterator[None]:
    """Within, a stage gets tensors of the right size from nowhere; a model that is no stage is left alone."""
    own = getattr(model, "_pp_stage", None)
    if own is None:
        yield
        return
    from transformers.cache_utils import Cache
    from transformers.distributed.pipeline_parallel import PipelineStage

    vocabulary = model.config.get_text_config().vocab_size
    first, last = own.layer_range_for_rank(own.pp_rank, model.config.num_hidden_layers)
    asked = {name: getattr(Cache, name) for name in ("get_seq_length", "get_query_offset", "get_mask_sizes")}

    def communicate(self: Any, operation: str, **values: Any) -> Any:
        if operation == "recv_forward" and not self.pp_is_first_stage:
            return torch.empty(values["shape"], dtype=values["dtype"], device="meta")
        if operation == "send_forward" and not self.pp_is_last_stage:
            values["tensor"].contiguous()
        return None

    def broadcast_from_last(self: Any, tensor: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        if tensor is not None:
            return tensor.contiguous()
        return torch.empty((model._pp_batch, 1, vocabulary), dtype=dtype, device="meta")

    def own_layer(cache: Any, layer: int) -> int:
        if first <= layer < last or layer >= len(cache.layers):
            return layer
        alike = [i for i in range(first, last) if type(cache.layers[i]) is type(cache.layers[layer])]
        return (alike or [first])[0]

    def get_seq_length(self: Any, layer_idx: int = 0) -> Any:
        return asked["get_seq_length"](self, own_layer(self, layer_idx))

    def get_query_offset(self: Any, layer_idx: int = 0) -> Any:
        return asked["get_query_offset"](self, own_layer(self, layer_idx))

    def get_mask_sizes(self: Any, query_length: int, layer_idx: int) -> Any:
        return asked["get_mask_sizes"](self, query_length, own_layer(self, layer_idx))

    with (
        mock.patch.object(PipelineStage, "communicate", communicate),
        mock.patch.object(PipelineStage, "broadcast_from_last", broadcast_from_last),
        mock.patch.object(Cache, "get_seq_length", get_seq_length),
        mock.patch.object(Cache, "get_query_offset", get_query_offset),
        mock.patch.object(Cache, "get_mask_sizes", get_mask_sizes),
    ):
        yield
