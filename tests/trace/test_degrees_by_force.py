"""The search over degrees gives the plan that comes first of all candidates, though it traces few of the degrees.

Brute force is the same search with nothing left out: every degree traced, every micro batch evaluated.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.search.search import Found, search
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.least import stages
from gpu_plan.planner.search.training.piped import judge as piped
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.workload.prefer import Prefer
from gpu_plan.planner.workload.training import Precision, Workload

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1024, "hidden_size": 512,
    "intermediate_size": 1024, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
}  # fmt: skip
MIXTRAL = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "vocab_size": 512, "hidden_size": 256,
    "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_local_experts": 4, "max_position_embeddings": 1024,
}  # fmt: skip


class Shared(TrainingTask):
    """A job whose degrees are looked at although every device holds these small models whole."""

    def _held_whole(self, family: Any) -> bool:
        return False


class Everything(Shared):
    """The same job, with no degree left out that bounds leave out."""

    def beaten(self, family: Any, ranking: Any, plans: Any) -> None:
        return None


def task_of(kind: type[TrainingTask], folder: Path, config: dict[str, Any], gpus: str, **given: Any) -> TrainingTask:
    """`given`: fields of the workload."""
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    source, cluster = resolve(str(path)), parse_cluster(gpus)
    provider = TraceProvider(source=source, device=device_kind(cluster.gpu), attention="sdpa")
    workload = replace(Workload(seq_len=256, precision=Precision("bf16-mixed")), **given)
    return kind(
        Evaluator(
            provider=provider, workload=workload, cluster=cluster, speed=RooflineModel(), config=source.config
        )
    )  # fmt: skip


def first(found: Found[StepJudgement]) -> tuple[Any, ...]:
    assert found.best is not None
    return (found.best.identity, found.best.profile.peak_allocated_bytes, found.best.seconds[0])


def compared(folder: Path, config: dict[str, Any], gpus: str, prefer: Prefer, **given: Any) -> tuple[int, int]:
    """Asserts that both searches choose the same; gives how many kinds were left out, and explored by force."""
    ours = search(task_of(Shared, folder, config, gpus, **given), prefer=prefer)
    every = search(task_of(Everything, folder, config, gpus, **given), prefer=prefer)
    assert first(ours) == first(every)
    assert ours.explored <= every.explored, "rules leave out the same in both"
    return len(ours.left_out), every.explored


def bounds_hold(folder: Path, config: dict[str, Any], gpus: str, **given: Any) -> int:
    """Asserts that no candidate takes less time or memory than its bound says; gives how many were compared."""
    task, looked = task_of(TrainingTask, folder, config, gpus, **given), 0
    for family in task.families():
        if family.copy_ranks == family.expert_parallel == 1 or task.refusal(family) is not None:
            continue
        cuts = task.cuts_of(family)
        for batch in cuts if family.pipeline is None else piped.runnable(family.pipeline, cuts):
            if family.pipeline is None:
                least, states = task.bounds.least(family, [batch]), task.bounds.states(family, batch)
            else:
                least = stages.least(task.evaluator, family, [batch])
                states = least.bytes
            real = task.evaluator.judge(family, batch)
            assert states <= real.least_bytes, (family.title, batch)
            assert least.bytes <= real.least_bytes, (family.title, batch)
            assert least.seconds is None or least.seconds <= real.seconds[0], (family.title, batch)
            looked += 1
    return looked


@pytest.mark.slow
def test_a_small_space_gives_the_plan_of_brute_force(tmp_path: Path) -> None:
    left_out, explored = compared(tmp_path, LLAMA, "2xH100", Prefer.BALANCE, global_batch=8)
    assert 0 < left_out < explored


@pytest.mark.slow
@pytest.mark.parametrize("config", [LLAMA, MIXTRAL], ids=["llama", "mixtral"])
@pytest.mark.parametrize("gpus", ["4xH100", "4xT4", "2x4xA100"])
@pytest.mark.parametrize("prefer", [Prefer.BALANCE, Prefer.SPEED, Prefer.SIMPLE, Prefer.MEMORY])
def test_spaces_give_the_plan_of_brute_force(tmp_path: Path, config: dict[str, Any], gpus: str, prefer: Prefer) -> None:
    precision = Precision("fp16-mixed" if "T4" in gpus else "bf16-mixed")
    compared(tmp_path, config, gpus, prefer, global_batch=16, precision=precision)


@pytest.mark.slow
@pytest.mark.parametrize("config", [LLAMA, MIXTRAL], ids=["llama", "mixtral"])
@pytest.mark.parametrize("gpus", ["4xH100", "2x2xA100"])
def test_fewer_samples_than_gpus_are_as_by_brute_force(tmp_path: Path, config: dict[str, Any], gpus: str) -> None:
    compared(tmp_path, config, gpus, Prefer.BALANCE, global_batch=2)


@pytest.mark.slow
@pytest.mark.parametrize("config", [LLAMA, MIXTRAL], ids=["llama", "mixtral"])
@pytest.mark.parametrize("gpus", ["4xH100", "2x2xA100"])
def test_no_candidate_takes_less_than_its_bound(tmp_path: Path, config: dict[str, Any], gpus: str) -> None:
    assert bounds_hold(tmp_path, config, gpus, global_batch=16) > 10


@pytest.mark.slow
def test_bounds_hold_of_fewer_experts_than_shards(tmp_path: Path) -> None:
    """Of eight shards each has a whole one of four experts; of four beside two ranks that share a copy, half a one."""
    wide = {**MIXTRAL, "hidden_size": 512, "intermediate_size": 2048}
    assert bounds_hold(tmp_path, wide, "2x4xH100", global_batch=16) > 10


def test_what_torchs_stages_hold_whole_is_in_the_bound(tmp_path: Path) -> None:
    """Of FSDP2's stages gathered weights in 16 bits and gradients in fp32; of every stage buffers for each micro batch
    of a step."""
    task = task_of(
        TrainingTask, tmp_path, {**LLAMA, "num_hidden_layers": 4}, "8xH100", pipeline_parallel=4, global_batch=64
    )
    parameters = sum(one.numel for one in task.evaluator.provider.spec().parameters)
    looked = 0
    for family in task.families():
        pipeline = family.pipeline
        if pipeline is None or pipeline.virtual_stages > 1 or task.refusal(family) is not None:
            continue
        batch = piped.runnable(pipeline, task.cuts_of(family))[0]
        samples = batch.micro_batch * batch.accumulation_steps
        sharded = family.strategy.name == "fsdp_pp"
        received = 2 * samples * 256 * 512 * (2 if sharded else 4)
        least = stages.least(task.evaluator, family, [batch])
        assert least.bytes >= received + parameters // 4 * (6 if sharded else 16), family.title
        looked += 1
    assert looked > 1
