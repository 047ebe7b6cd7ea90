"""What of a plan the launch itself cannot apply: said before it starts. Pure."""

from collections.abc import Iterator

from gpu_plan.executor.launch.target import Target
from gpu_plan.executor.script.accelerator import AcceleratorUse
from gpu_plan.planner.workload.adapters import stored_adapters

_SCRIPT_SETTINGS = {
    "ddp.gradient_as_bucket_view": "DistributedDataParallelKwargs(gradient_as_bucket_view=True) among the script's"
    " kwargs_handlers",
    "dtype.reduce": "a MixedPrecisionPolicy with that reduce_dtype in the script's FullyShardedDataParallelPlugin",
    "fsdp.sync_each_batch": "GradientAccumulationPlugin(sync_each_batch=True), or a loop without no_sync, in the"
    " script",
    "kernels.liger": "the script applies Liger's kernels (`use_liger_kernel` of TrainingArguments)",
}
_SPREAD_SETTINGS = {
    "dtype.reduce": "transformers' own FSDP2 reduces in float32 where its precision is mixed",
    "fsdp.reshard_after_forward": "transformers' own FSDP2 keeps or frees each part as the class's plan says",
}
"""Of models that are spread over ranks: what transformers decides itself."""
_NEUTRAL = frozenset(
    {
        ("fsdp.reshard_after_forward", "true"),
        ("fsdp.sync_each_batch", "false"),
        ("ddp.gradient_as_bucket_view", "false"),
        ("kernels.liger", "false"),
    }
)
_SPREAD_NEUTRAL = frozenset({("dtype.reduce", "float32")})
"""What they do anyway where weights are fp32."""


def not_applied(target: Target, use: AcceleratorUse) -> tuple[str, ...]:
    """One line for each part of the plan that only the script can bring about, or that the script overrides."""
    return (*_overridden(target, use), *_own_loop(target, use), *_left_to_the_script(target))


def _overridden(target: Target, use: AcceleratorUse) -> Iterator[str]:
    where = f"{target.script.name}:{use.line}"
    given = use.arguments
    word = target.precision.launcher
    if "mixed_precision" in given and given["mixed_precision"] not in (None, word):
        yield f"precision {target.strategy.precision}: Accelerator(mixed_precision=...) at {where} wins"
    steps = target.strategy.loop_steps
    if "gradient_accumulation_plugin" in given:
        yield f"{steps} accumulation steps: the gradient_accumulation_plugin at {where} wins"
    elif use.line and steps > 1 and not use.accumulates and not target.in_trainer:
        yield f"{steps} accumulation steps: the script never calls accelerator.accumulate()"
    for name, applies in (("fsdp_plugin", target.uses_fsdp), ("deepspeed_plugin", target.uses_deepspeed)):
        if name in given and applies:
            yield f"the launch files' settings of {target.strategy.name}: the {name} at {where} wins"
    backend = next((name for name in ("dynamo_backend", "dynamo_plugin") if name in given), None)
    if backend is not None and target.compiler is not None:
        yield f"--set compile.backend={target.compiler}: the {backend} at {where} wins"
    if "dataloader_config" in given and target.data_loader:
        names = ", ".join(target.data_loader)
        yield f"{names}: the dataloader_config at {where} wins"


def _own_loop(target: Target, use: AcceleratorUse) -> Iterator[str]:
    """A loop of plain PyTorch, or Lightning's, reads nothing of Accelerate's configuration."""
    if target.loop not in ("plain", "lightning"):
        return
    strategy = target.strategy
    brings = target.traits.wrapped_by
    if target.loop == "lightning" and brings and not brings & use.names:
        yield f"{strategy.name}: the script runs its own loop without Accelerate, and does not wrap its model so"
    gathered = target.degrees is not None and target.degrees.fsdp_mixed_precision
    if target.precision.mixed and not gathered and not use.names & {"autocast", "bf16", "fp16", "precision"}:
        yield f"precision {strategy.precision}: the script's own loop has no autocast"
    if target.compiler is not None and "compile" not in use.names:
        yield f"--set compile.backend={target.compiler}: the script runs its own loop, and does not compile its model"


def _left_to_the_script(target: Target) -> Iterator[str]:
    strategy, workload = target.strategy, target.saved.workload
    if target.precision.is_pure and not target.uses_deepspeed:
        yield f"pure {strategy.precision}: the script has to load its model in {target.precision.dtype}"
    if strategy.checkpointing == "selective":
        yield "selective checkpointing: the script switches it on, as the plan's notes say"
    if strategy.checkpointing == "full" and target.checkpoint_every > 1 and not target.in_trainer:
        every = target.checkpoint_every
        yield f"one layer in {every} checkpointed: model.gradient_checkpointing_enable(every_n_layers={every})"
    if strategy.checkpointing == "full" and target.setting("checkpoint.reentrant") == "true" and not target.in_trainer:
        words = 'gradient_checkpointing_kwargs={"use_reentrant": True}'
        yield f"reentrant checkpoints: model.gradient_checkpointing_enable({words})"
    if (
        target.setting("checkpoint.offload") == "true"
        and strategy.checkpointing == "full"
        and not target.checkpoints_on_host
    ):
        yield "--set checkpoint.offload=true: the script checkpoints by itself, and Accelerate wraps nothing"
    if stored_adapters(workload.get("peft")).adapts:
        yield f"--peft {workload['peft']}: the script wraps its model with peft itself"
    neutral = _NEUTRAL | (_SPREAD_NEUTRAL if target.spreads_model and not target.precision.is_pure else frozenset())
    for key, how in {**_SCRIPT_SETTINGS, **(_SPREAD_SETTINGS if target.spreads_model else {})}.items():
        value = target.setting(key)
        if value is not None and (key, value) not in neutral and not (key == "kernels.liger" and target.in_trainer):
            yield f"--set {key}={value}: {how}"
    if target.data_loader and target.loop not in ("accelerate", "trainer"):
        yield f"{', '.join(target.data_loader)}: the script has no Accelerator to give them to"
    if target.in_trainer and "split_batches" in target.data_loader:
        yield "split_batches: the Trainer counts its batches per device"
    if target.loop == "unknown":
        yield f"what the loop of {target.script.name} does could not be read: what really ran is compared afterwards"
