"""Layouts that are tried: degrees as given, else those within a node and stages over nodes."""

from collections.abc import Iterator

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.megatron.settings import attention_kernel, flag, number, share
from gpu_plan.planner.workload.training import Checkpointing, Workload

_BLACKWELL = (10, 0)
"""From there on products in float8 take operands in any order (transformer_engine/pytorch/utils.py:
is_non_tn_fp8_gemm_supported)."""
_MOST_STAGES = 64
"""Pipeline ranks that are tried unasked: beyond that no published run has gone."""


def layouts(workload: Workload, cluster: Cluster, checkpointing: Checkpointing) -> Iterator[Layout]:
    """Every layout of the devices, fewest ranks that share a copy first."""
    within = [degree for degree in range(1, cluster.gpus_per_node + 1) if cluster.gpus_per_node % degree == 0]
    stages = [degree for degree in range(1, min(cluster.world_size, _MOST_STAGES) + 1) if _is_power(degree)]
    found = [
        (tensor, pipeline, context, expert)
        for tensor in _given(workload.tensor_parallel, within)
        for pipeline in _given(workload.pipeline_parallel, stages)
        for context in _given(workload.context_parallel, within)
        for expert in _given(workload.expert_parallel, within)
        if (workload.context_parallel is not None or context == 1 or tensor * context <= cluster.gpus_per_node)
        and _fits(cluster.world_size, tensor * context, pipeline, expert * (_expert_tensor(workload)))
    ]
    for tensor, pipeline, context, expert in sorted(found, key=lambda one: (one[0] * one[1] * one[2], one)):
        yield _layout(workload, cluster, checkpointing, tensor, pipeline, context, expert)


def _layout(
    workload: Workload,
    cluster: Cluster,
    checkpointing: Checkpointing,
    tensor: int,
    pipeline: int,
    context: int,
    expert: int,
) -> Layout:
    settings = dict(workload.settings)
    return Layout(
        tensor=tensor,
        pipeline=pipeline,
        virtual=workload.virtual_stages or (2 if workload.schedule == "interleaved" and pipeline > 1 else 1),
        group=number(settings, "group_size"),
        context=context,
        context_comm=settings.get("megatron.context_comm", "p2p"),  # type: ignore[arg-type]
        expert=expert,
        expert_tensor=_expert_tensor(workload),
        sequence=tensor > 1 and flag(settings, "sequence_parallel", True),
        recompute="none" if checkpointing is Checkpointing.NONE else checkpointing.value,  # type: ignore[arg-type]
        recompute_modules=tuple(settings.get("megatron.recompute_modules", "core_attn").split(",")),
        recompute_method=settings.get("megatron.recompute_method", "uniform"),  # type: ignore[arg-type]
        recompute_layers=number(settings, "recompute_layers") or 1,
        attention=attention_kernel(str(workload.attention), cluster.gpu.compute_capability),
        fused_gradients=flag(settings, "gradient_fusion", True),
        fused_activation=flag(settings, "activation_fusion", True),
        deallocates=flag(settings, "deallocate_outputs", True),
        float8=settings.get("megatron.fp8_recipe", "delayed") if workload.precision.is_float8 else "none",  # type: ignore[arg-type]
        float8_stored=flag(settings, "fp8_params", False),
        float8_twice=(cluster.gpu.compute_capability or (0, 0)) < _BLACKWELL,
        cross_entropy=settings.get("megatron.cross_entropy", "unfused"),  # type: ignore[arg-type]
        dispatcher=settings.get("megatron.dispatcher", "alltoall"),  # type: ignore[arg-type]
        wide_router=settings.get("megatron.router_dtype", "float32") == "float32",
        grouped=flag(settings, "grouped_experts", True),
        capacity=share(settings, "expert_capacity"),
        load=float(settings.get("megatron.expert_load", 1)),
        first_layers=number(settings, "first_layers"),
        last_layers=number(settings, "last_layers"),
        embedding_counts=flag(settings, "embedding_counts", False),
        loss_counts=flag(settings, "loss_counts", False),
    )


def _expert_tensor(workload: Workload) -> int:
    return number(dict(workload.settings), "expert_tensor") or 1


def _given(value: int | None, otherwise: list[int]) -> list[int]:
    return otherwise if value is None else [value]


def _fits(world: int, copy: int, pipeline: int, experts: int) -> bool:
    """Whether both ways to count a pipeline stage's ranks come out whole."""
    return world % (copy * pipeline) == 0 and world % (experts * pipeline) == 0


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0
