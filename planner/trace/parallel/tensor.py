"""One rank's part of a tensor-parallel model: transformers' own sharding, in a process group that never sends.

`from_pretrained(tp_plan="auto")` resolves the class's plan, wraps the parameters as DTensors and replaces the forward
of the planned modules (transformers distributed/mixin.py: maybe_distribute_model, distributed/tensor_parallel.py:
apply_tensor_parallelism). The same is done here to the model on meta, as rank 0 of a fake group of that many ranks.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.model.build.lean.imports import dynamo_away
from gpu_plan.planner.trace.inputs.meta_ops import META_OPS
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.parallel.plans import DISPATCHES


@contextlib.contextmanager
def ranks(degree: int, rank: int = 0) -> Iterator[None]:
    """Within, torch.distributed has a group of `degree` ranks, of which this is one; collectives send nothing."""
    import torch.distributed as dist

    if degree == 1:
        yield
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise UsageError("tensor parallel plans are made in a process that is in no process group")
    dist.init_process_group("fake", rank=rank, world_size=degree, store=FakeStore())
    with dynamo_away(), _own_shapes() if rank else contextlib.nullcontext():
        try:
            yield
        finally:
            dist.destroy_process_group()


@contextlib.contextmanager
def _own_shapes() -> Iterator[None]:
    """Within, no local shape is another rank's: torch keeps those of views by operator, for the one rank that a process
    usually is (torch/distributed/tensor/_sharding_prop.py: ShardingPropagator.propagate_op_sharding)."""
    from torch.distributed.tensor.debug import _clear_sharding_prop_cache

    _clear_sharding_prop_cache()
    try:
        yield
    finally:
        _clear_sharding_prop_cache()


TIED_APART = "_plan_tied_apart"
"""Attribute of a model whose tied weights are parameters of their own: their names, and what each is tied to."""


WRAPPED = "_plan_wrapped"
"""Attribute of a model that FSDP2 is to wrap by its class's plan: modules, and whether they are kept whole."""


def shard(model: Any, degree: int, experts: int = 1, *, apart: bool = False) -> None:
    """Leaves rank 0's part of `model`, in place, within `ranks(max(degree, experts))`; what was trained still is.

    `degree` ranks compute one copy together, `experts` hold whole experts each; `apart` leaves tied weights as they are
    when FSDP2 wraps the model. CannotSplitError, in one line, for a class without a plan and for sizes that the plan
    cannot divide.
    """
    if max(degree, experts) == 1:
        return
    if degree > 1 and not model.tp_plan:
        raise CannotSplitError(f"{type(model).__name__} has no plan for tensor parallel")
    check_heads(model, degree)
    if experts > 1:
        _check_experts(model, experts)
    try:
        _apply(model, degree, experts, apart)
    except (ValueError, RuntimeError, KeyError, NotImplementedError) as problem:
        first = str(problem).strip().splitlines() or [""]
        how = [f"{degree} GPUs by tensor parallel"] if degree > 1 else []
        how += [f"{experts} GPUs by expert parallel"] if experts > 1 else []
        raise CannotSplitError(
            f"{type(model).__name__} cannot be split over {' and '.join(how)}: {first[0][:160]}"
        ) from None


def _apply(model: Any, degree: int, experts: int, apart: bool) -> None:
    """transformers distributed/mixin.py: maybe_distribute_model, but for FSDP2, which what is replayed has apart."""
    from torch.distributed.device_mesh import init_device_mesh
    from transformers.distributed.configuration_utils import DistributedConfig
    from transformers.distributed.expert_parallel import apply_expert_parallelism
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    shards = max(degree, experts) // degree
    config = DistributedConfig(tp_size=degree, fsdp_size=shards, ep_size=experts)
    plan, expert_plan, _ = model._resolve_parallel_plans(config)
    if experts > 1 and DISPATCHES not in expert_plan.values():
        raise ValueError("its plan names no experts to hand tokens to")
    # Asked before ties are cut: a tied head is wrapped with the embedding.
    wrapped = model._resolve_parallel_plans(DistributedConfig(fsdp_size=2))[2] if apart else {}
    tied = _untied(model, None if apart else plan)
    model.config.distributed_config, model._tp_size = config, degree
    mesh = init_device_mesh("cpu", (shards, degree), mesh_dim_names=("shards", "tp"))["tp"]
    if degree > 1:
        apply_tensor_parallelism(model, mesh, plan)
    if experts > 1:
        apply_expert_parallelism(model, init_device_mesh("cpu", (experts,), mesh_dim_names=("ep",)), mesh, expert_plan)
    if apart:
        setattr(model, TIED_APART, {name: other for _, _, other, name in tied})
        setattr(model, WRAPPED, wrapped)
        return
    for owner, key, other, _ in tied:
        owner._parameters[key] = model.get_parameter(other)


def distributed_types() -> tuple[type, ...]:
    """Tensor classes that hold a rank's own tensor, or one that is still being received."""
    from torch.distributed._functional_collectives import AsyncCollectiveTensor
    from torch.distributed.tensor import DTensor

    return DTensor, AsyncCollectiveTensor


@contextlib.contextmanager
def as_between_devices() -> Iterator[None]:
    """Within, a step of a rank takes on the meta device what it takes on its own.

    torch/distributed/tensor/_sharding_prop.py: ShardingPropagator._propagate_tensor_meta_non_cached runs an operator
    once on whole fake tensors, to learn the shapes of results: that is nobody's to record, and of the modes above it
    only tracing's is switched off there. torch/distributed/_functional_collectives.py: _wrap_tensor_autograd wraps what
    is being received without another storage, but for its kernel on meta; torch/csrc/distributed/c10d/Functional.cpp:
    wait_tensor gives back what it was given, its kernel on meta a copy.
    """
    from torch.distributed import _functional_collectives  # noqa: F401  (registers the operator)
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    operators, alias = torch.ops._c10d_functional, torch.ops.aten.alias.default
    received = {operators._wrap_tensor_autograd.default: alias, operators.wait_tensor.default: alias}

    asked = ShardingPropagator._propagate_tensor_meta_non_cached

    def apart(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return asked(self, *args, **kwargs)

    with (
        mock.patch.object(ShardingPropagator, "_propagate_tensor_meta_non_cached", apart),
        mock.patch.dict(META_OPS, received),
    ):
        yield


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of a parameter."""
    local: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    return local


def is_split(tensor: torch.Tensor) -> bool:
    """Whether this rank holds a part of a parameter, and others the rest."""
    return hasattr(tensor, "_local_tensor")


OWN_EXPERTS = "_plan_own_experts"
"""Attribute of a parameter of experts of which other ranks hold the rest, where no mesh says so."""


def holds_experts(tensor: torch.Tensor) -> bool:
    """Whether this rank holds whole experts, and others the rest."""
    if getattr(tensor, OWN_EXPERTS, False):
        return True
    mesh = getattr(tensor, "device_mesh", None)
    return mesh is not None and tuple(mesh.mesh_dim_names or ()) == ("ep",)


def _untied(model: Any, plan: dict[str, str] | None) -> list[tuple[nn.Module, str, str, str]]:
    """Gives planned tied weights, or all of them, tensors of their own: from_pretrained ties them after sharding.

    Gives module, parameter, the name that it is to be tied to again, and its own.
    """
    first: dict[int, str] = {}
    found = []
    for name, parameter in model.named_parameters(remove_duplicate=False):
        known = first.setdefault(id(parameter), name)
        if known != name and (plan is None or name in plan):
            owner_name, _, key = name.rpartition(".")
            owner = model.get_submodule(owner_name)
            owner._parameters[key] = nn.Parameter(torch.empty_like(parameter), requires_grad=parameter.requires_grad)
            found.append((owner, key, known, name))
    return found


def _check_experts(model: Any, experts: int) -> None:
    """CannotSplitError for a class whose experts stay together, and where a rank would get a part of one."""
    name = type(model).__name__
    if not model.ep_plan:
        raise CannotSplitError(f"{name} has no plan for expert parallel")
    for module in model.modules():
        held = getattr(module, "num_experts", None)
        own = any(parameter.dim() > 2 for parameter in module.parameters(recurse=False))
        if own and isinstance(held, int) and held % experts:
            raise CannotSplitError(f"{name} has {held} experts a layer, which {experts} GPUs do not divide")


def check_heads(model: Any, degree: int) -> None:
    """CannotSplitError where a rank would get a part of a head: the models' own reshapes fail there."""
    config = model.config.get_text_config()
    for key, words in (("num_attention_heads", "attention heads"), ("num_key_value_heads", "key-value heads")):
        for heads in _of_every_layer(config, key):
            if isinstance(heads, int) and heads % degree:
                raise CannotSplitError(f"{type(model).__name__} has {heads} {words}, which {degree} GPUs do not divide")


def _of_every_layer(config: Any, key: str) -> list[Any]:
    """A config's value; the values of its layers where these may differ, which it refuses to tell as one
    (transformers integrations/heterogeneity/configuration_utils.py)."""
    layers = getattr(config, "per_layer_config", None)
    return [getattr(config, key, None)] if not layers else [getattr(layer, key, None) for layer in layers]
