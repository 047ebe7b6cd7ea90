"""What classes say of how they are split, read from their source, and what follows without a trace."""

import ast
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.search.ranking.rules import Ranking
from gpu_plan.planner.search.training.candidates import Family
from gpu_plan.planner.search.training.degrees import expert_degrees, replica_counts, tensor_degrees
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.least.together import _of_losses
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.speed.collectives import Group, group_of
from gpu_plan.planner.speed.model import Collective
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.strategy.known import traits_of
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.parallel.plans import EXPERT, TENSOR, divides, parallel_plan, replicated, sums_of
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.workload.prefer import Prefer
from gpu_plan.planner.workload.training import Checkpointing, Workload
from tests.unit.search.test_ranking import judged


def test_plans_are_those_of_the_classes_source() -> None:
    llama, experts = parallel_plan("llama", TENSOR), parallel_plan("qwen3_moe", EXPERT)
    assert llama is not None
    assert experts is not None
    assert llama["layers.*.self_attn.o_proj"] == "rowwise"
    assert experts["layers.*.mlp.experts"] == "ep_dispatch_experts"
    assert parallel_plan("gpt2", TENSOR) is None
    assert parallel_plan("llama", EXPERT) is None
    assert parallel_plan(None, TENSOR) is None
    assert parallel_plan("../llama", TENSOR) is None


def test_every_rank_gets_whole_logits_by_whatever_style_a_head_has() -> None:
    """The bound of ranks that share a copy counts their loss whole (search/training/least/together.py)."""
    package = find_spec("transformers")
    if package is None or package.origin is None:
        pytest.skip("transformers is not installed")
    folder = Path(package.origin).parent / "models"
    found = {
        style
        for path in folder.glob("*/modeling_*.py")
        for plan in re.findall(r"^ +_tp_plan = (\{.*\})$", path.read_text(encoding="utf-8"), re.MULTILINE)
        for style in ast.literal_eval(plan).values()
    }
    assert found == {"colwise_gather_output", "rowwise_split_input"}


def test_the_loss_is_no_part_of_what_ranks_share() -> None:
    """Of the head's products half is counted, of the loss over its logits all."""
    names = ["", "lm_head", "model.layers.0.mlp.gate_proj"]
    trace = SimpleNamespace(
        modules=names,
        op_module=np.array([0, 0, 1, 2]),
        op_flops_fixed=np.array([0.0, 7.0, 1.0, 1.0]),
        op_flops_per_sample=np.zeros(4),
    )
    assert _of_losses(trace).tolist() == [True, False, False, False]  # type: ignore[arg-type]


def parameter(name: str, *shape: int) -> Any:
    return SimpleNamespace(name=name, shape=shape)


def test_sums_are_counted_from_the_plan_and_the_shapes() -> None:
    plan = {"layers.*.q_proj": "colwise", "layers.*.o_proj": "rowwise", "layers.*.experts": "moe_tp_experts",
            "layers.*.experts.down_proj": "rowwise"}  # fmt: skip
    held = [
        parameter("model.layers.0.q_proj.weight", 32, 16),
        parameter("model.layers.0.o_proj.weight", 16, 32),
        parameter("model.layers.0.experts.down_proj", 4, 16, 8),
        parameter("model.norm.weight", 16),
    ]
    spec: Any = SimpleNamespace(parameters=held, hidden_size=16)
    sums = sums_of(spec, plan)
    assert sums.forward == (16, 16), "the projection's output, the experts' output"
    assert sums.backward == (16, 16), "the gradient of what each of both takes"


def test_what_the_plan_leaves_whole() -> None:
    modules = ["", "layers.0", "layers.0.norm", "layers.0.attn", "layers.0.attn.q", "layers.0.attn.q_norm", "norm"]
    whole = replicated(modules, ["layers.0"], "norm", {"layers.*.attn.q": "colwise"})
    assert whole == {"layers.0", "layers.0.norm", "norm"}


@pytest.mark.parametrize(
    ("config", "degree", "whole"),
    [
        ({"num_attention_heads": 8, "num_key_value_heads": 2}, 2, True),
        ({"num_attention_heads": 8, "num_key_value_heads": 2}, 4, False),
        ({"text_config": {"num_attention_heads": 6}}, 4, False),
        ({}, 4, True),
    ],
)
def test_heads_are_never_cut(config: dict[str, Any], degree: int, whole: bool) -> None:
    assert divides(config, degree) is whole


def test_degrees_stay_within_a_node_and_replicas_hold_whole_nodes() -> None:
    cluster = parse_cluster("4x8xH100")
    assert tensor_degrees(traits_of("fsdp_tp"), Workload(), cluster) == [2, 4, 8]
    assert tensor_degrees(traits_of("tp"), Workload(), cluster) == []
    assert tensor_degrees(traits_of("tp"), Workload(), parse_cluster("4xH100")) == [4]
    assert tensor_degrees(traits_of("fsdp_tp"), Workload(tensor_parallel=16), cluster) == [16]
    assert tensor_degrees(traits_of("fsdp_tp"), Workload(), parse_cluster("4xH100")) == [2], "4 leave nothing to shard"
    assert tensor_degrees(traits_of("fsdp_tp"), Workload(tensor_parallel=3), cluster) == [], "32 are no threes"
    assert tensor_degrees(traits_of("fsdp_tp"), Workload(), parse_cluster("4x6xH100")) == [2, 3, 6], "of a node's six"
    assert replica_counts(traits_of("hsdp"), Workload(), cluster) == [2]
    assert replica_counts(traits_of("hsdp"), Workload(dp_replicate=2), cluster) == []
    assert replica_counts(traits_of("fsdp"), Workload(), cluster) == []


def test_ranks_that_hold_whole_experts_are_as_given_or_those_of_a_node() -> None:
    cluster = parse_cluster("2x8xH100")
    assert expert_degrees(traits_of("fsdp"), Workload(expert_parallel=4), cluster) == [1], "it has no such ranks"
    assert expert_degrees(traits_of("fsdp_ep"), Workload(), cluster) == [2, 4, 8]
    assert expert_degrees(traits_of("fsdp_ep"), Workload(expert_parallel=4), cluster) == [4]


def test_groups_beside_each_other_lie_over_more_nodes() -> None:
    cluster = parse_cluster("2x8xH100")
    call = {"kind": "all_gather", "bytes": 1, "phase": "forward", "per": "step", "overlap": True, "ranks": 8}
    assert group_of(Collective(**call), cluster) == Group(ranks=8, nodes=1, per_node=8)  # type: ignore[arg-type]
    assert group_of(Collective(**call, stride=2), cluster) == Group(ranks=8, nodes=2, per_node=4)  # type: ignore[arg-type]


def test_what_cannot_come_first() -> None:
    fast = judged("fast", (1.0,), parts=2)
    balance, speed, memory, simple = (
        Ranking(prefer=prefer) for prefer in (Prefer.BALANCE, Prefer.SPEED, Prefer.MEMORY, Prefer.SIMPLE)
    )
    assert balance.beyond([fast], seconds=1.06, parts=0), "too slow to tie"
    assert balance.beyond([fast], seconds=1.01, parts=4), "may tie, and has more parts"
    assert not balance.beyond([fast], seconds=1.01, parts=1), "may tie, and has fewer parts"
    assert not balance.beyond([fast], seconds=0.99, parts=4), "may be faster"
    assert speed.beyond([fast], seconds=1.01, parts=1)
    assert not memory.beyond([fast], seconds=1.9, parts=9), "may leave more of the device free"
    assert memory.beyond([fast], seconds=2.1, parts=9), "takes more than twice as long"
    assert simple.beyond([fast], seconds=0.6, parts=3), "has more parts"
    assert not simple.beyond([fast], seconds=0.1, parts=3), "may be so fast that the simpler one is too slow beside it"
    assert not balance.beyond([], seconds=9.0, parts=9)


@pytest.mark.parametrize(("seq_len", "first"), [(4096, "stages"), (32_768, "shares")])
def test_long_samples_are_shared_out_before_a_copy_is_cut_into_stages(seq_len: int, first: str) -> None:
    cluster, source = parse_cluster("8xH100"), resolve("meta-llama/Llama-3.1-8B")
    provider = TraceProvider(source=source, device=device_kind(cluster.gpu), attention="sdpa", use_cache=False)
    workload = Workload(seq_len=seq_len, micro_batch=1, grad_accum=8)
    evaluator = Evaluator(
        provider=provider, workload=workload, cluster=cluster, speed=RooflineModel(), config=source.config
    )
    kinds = ["stages" if one.pipeline else "shares" if one.context_parallel > 1 else "whole"
             for one in TrainingTask(evaluator).families()]  # fmt: skip
    turns = [kind for kind in dict.fromkeys(kinds) if kind != "whole"]
    assert turns == [first, {"stages": "shares", "shares": "stages"}[first]]


def test_sharing_out_samples_is_one_more_thing_to_set_up() -> None:
    """Of two that tie the one without context parallelism is first, as without tensor parallelism."""
    fsdp, both = STRATEGIES["fsdp"], STRATEGIES["fsdp_tp"]
    plain = Family(strategy=fsdp, offload=Offload.NONE, checkpointing=Checkpointing.NONE)
    families = (plain, replace(plain, context_parallel=2), replace(plain, strategy=both, tensor_parallel=2))
    parts = [
        StepJudgement.moving_parts.fget(SimpleNamespace(family=one, offloads=False))  # type: ignore[attr-defined]
        for one in families
    ]
    assert parts[0] < parts[1] == parts[2]
