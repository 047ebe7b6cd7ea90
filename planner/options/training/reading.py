"""From option words to values: each checked, and those that contradict each other refused."""

from collections.abc import Mapping, Sequence

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.options.degrees.context import check_context
from gpu_plan.planner.options.degrees.megatron import check_schedule, runs_own_model
from gpu_plan.planner.options.settings import parse_settings
from gpu_plan.planner.options.stacks import check_stack
from gpu_plan.planner.options.training.adapters import check_adapters, targets
from gpu_plan.planner.options.training.contradictions import (
    check_every,
    check_pinned_memory,
    check_replicas,
    check_strategy_settings,
    check_swapping,
)
from gpu_plan.planner.options.training.given import Given
from gpu_plan.planner.options.training.groups import with_degrees, with_experts, with_stages
from gpu_plan.planner.options.values import choice, positive
from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.strategy.known import (
    traits_of,
)
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.workload.adapters import Peft
from gpu_plan.planner.workload.optimizers.registry import NOT_BUILT as OPTIMIZERS_NOT_BUILT
from gpu_plan.planner.workload.optimizers.registry import Optimizer
from gpu_plan.planner.workload.precisions import Precision
from gpu_plan.planner.workload.training import (
    Attention,
    Checkpointing,
    Stack,
)

_LATER: Mapping[str, tuple[str, ...]] = {
    "--optimizer": OPTIMIZERS_NOT_BUILT,
    "--stack": ("megatron",),
}
"""Values of the interface that later versions bring."""


def read_given(words: Mapping[str, str], settings: Sequence[str]) -> Given:
    """What the words mean; UsageError in one line for every value that makes no sense, before any work is done."""
    strategy = words.get("strategy")
    given = Given(
        precision=choice(Precision, words.get("precision"), "--precision"),
        optimizer=choice(Optimizer, words.get("optimizer"), "--optimizer", later=_LATER["--optimizer"]),
        attention=choice(Attention, words.get("attention"), "--attention"),
        stack=choice(Stack, words.get("stack"), "--stack", later=_LATER["--stack"]),
        checkpointing=choice(Checkpointing, words.get("checkpointing"), "--checkpointing"),
        strategy=None if strategy in (None, "auto") else traits_of(str(strategy).lower()).name,
        offload=choice(Offload, words.get("offload"), "--offload"),
        seq_len=positive(words.get("seq-len"), "--seq-len"),
        micro_batch=positive(words.get("micro-batch"), "--micro-batch"),
        global_batch=positive(words.get("global-batch"), "--global-batch"),
        grad_accum=positive(words.get("grad-accum"), "--grad-accum"),
        dp_replicate=positive(words.get("dp-replicate"), "--dp-replicate"),
        tensor_parallel=positive(words.get("tp"), "--tp"),
        expert_parallel=positive(words.get("ep"), "--ep"),
        context_parallel=positive(words.get("cp"), "--cp"),
        pipeline_parallel=positive(words.get("pp"), "--pp"),
        schedule=choice(Schedule, words.get("schedule"), "--schedule"),
        virtual_stages=positive(words.get("vpp"), "--vpp"),
        peft=choice(Peft, words.get("peft"), "--peft"),
        lora_rank=positive(words.get("lora-rank"), "--lora-rank"),
        lora_targets=targets(words.get("lora-targets")),
        fused_loss=None if words.get("fused-loss") is None else words.get("fused-loss") == "true",
        settings=parse_settings(settings),
    )
    inference = next((key for key, _ in given.settings if key.startswith(("cache.", "prefill."))), None)
    if inference is not None:
        raise UsageError(f"--set {inference} is about inference: add --task infer")
    if runs_own_model(given.strategy):
        check_schedule(given.schedule, given.virtual_stages, given.pipeline_parallel)
    else:
        check_context(given.context_parallel, given.strategy, _beside_context(given))
        given = with_stages(with_experts(with_degrees(given)))
    check_adapters(given)
    check_replicas(given)
    check_every(given.checkpointing, given.settings, given.stack)
    check_strategy_settings(given.strategy, given.settings)
    check_swapping(given)
    check_pinned_memory(given.offload, given.settings)
    check_stack(given.stack, given.strategy, given.precision, given.peft, given.expert_parallel or 1)
    return given


def _beside_context(given: Given) -> dict[str, int | None]:
    """Degrees that could stand beside `--cp`."""
    return {"--tp": given.tensor_parallel, "--ep": given.expert_parallel, "--pp": given.pipeline_parallel}
