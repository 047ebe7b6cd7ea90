"""A model spread by transformers itself: `from_pretrained(distributed_config=...)` of weights that rank 0 wrote."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers.distributed import DistributedConfig

from gpu_plan.planner.trace.parallel.experts import crowded_choices, even_choices
from gpu_plan.planner.trace.parallel.sequence import cut_sequence
from tests.support.cpu_reference import real_twin
from tests.support.ranks.case import RankCase


def weights_of(meta: nn.Module, case: RankCase) -> Path:
    """A folder with random weights, the same on every rank of this launch."""
    named = [tempfile.mkdtemp(prefix="plan-native-") if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(named)
    folder = Path(named[0])
    if dist.get_rank() == 0:
        real_twin(meta, getattr(torch, case.stored), case.attention.value).save_pretrained(folder)
    dist.barrier()
    return folder


def loaded(case: RankCase, meta: nn.Module) -> Any:
    """This rank's part."""
    if case.cuts_sequence:
        return cut(case, meta)
    folder = weights_of(meta, case)
    degrees = DistributedConfig(
        tp_size=case.tensor_parallel,
        dp_replicate_size=case.replicas,
        fsdp_size=dist.get_world_size() // case.tensor_parallel // case.replicas,
        ep_size=case.expert_parallel,
        fsdp_mixed_precision=case.precision.is_mixed,
    )
    if case.expert_parallel > 1:
        choose(crowded=case.crowded)
    kind: Any = type(meta)
    eager = {"attn_implementation": "eager"} if case.attention.value == "eager" else {}
    model = kind.from_pretrained(folder, distributed_config=degrees, dtype=getattr(torch, case.stored), **eager)
    dist.barrier()
    shutil.rmtree(folder, ignore_errors=True)
    return model.train()


def cut(case: RankCase, meta: nn.Module) -> Any:
    """This rank's part as torchtitan 0.2.2 has it, in its own order: apply_non_moe_tp, apply_ac, apply_fsdp
    (experiments/transformers_modeling_backend/infra/parallelize.py)."""
    torch.manual_seed(0)
    model: Any = real_twin(meta, getattr(torch, case.stored), case.attention.value)
    shards = dist.get_world_size() // case.tensor_parallel
    mesh = init_device_mesh("cpu", (shards, case.tensor_parallel), mesh_dim_names=("fsdp", "tp"))
    cut_sequence(model, mesh["tp"], case.seq_len)
    if shards > 1:
        mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        words: dict[str, Any] = {"mesh": mesh["fsdp"], **({"mp_policy": mixed} if case.precision.is_mixed else {})}
        base = model.model
        for module in (base.embed_tokens, *base.layers):
            fully_shard(module, **words, reshard_after_forward=True)
        fully_shard([base.norm, model.lm_head], **words, reshard_after_forward=False)
        fully_shard(model, **words)
    return model.train()


_DISPATCH: list[Any] = []
"""transformers' own, which the first case of a launch puts here."""


def choose(*, crowded: bool) -> None:
    """Every expert as often as the others, or the first rank's as often as may be, in place of what random weights
    choose: what a plan counts with."""
    from transformers.distributed.expert_parallel import AllToAllEP

    if not _DISPATCH:
        _DISPATCH.append(AllToAllEP._dispatch_tokens)

    def chosen(self: Any, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
        own = self.num_local_experts
        experts = own * self.ep_mesh.size()
        choices = (crowded_choices if crowded else even_choices)(top_k_index, experts, own)
        return _DISPATCH[0](self, hidden_states, choices, top_k_weights)

    AllToAllEP._dispatch_tokens = chosen


def copied(model: Any) -> Any:
    """The same part in storages that are made here: loading frees in threads that the profiler does not see."""
    model = in_new_storages(model)
    model.tie_weights()
    return model


def in_new_storages(model: Any) -> Any:
    """The same, but that tied weights are not tied again."""
    kept = [*model.parameters(), *model.buffers()]
    with torch.no_grad():
        for module in model.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    module._parameters[name] = nn.Parameter(_copy(parameter), requires_grad=parameter.requires_grad)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = buffer.clone()
    model.kept = kept
    return model


def _copy(parameter: Any) -> Any:
    if not isinstance(parameter, DTensor):
        return parameter.detach().clone()
    local = parameter.to_local().detach().clone()
    return DTensor.from_local(
        local, parameter.device_mesh, parameter.placements, run_check=False, shape=parameter.shape,
        stride=parameter.stride(),
    )  # fmt: skip
