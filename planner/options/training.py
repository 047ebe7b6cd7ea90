"""From option words to a Workload: values checked, defaults filled, every origin noted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.adapter import DEFAULT_RANK, Adapter
from gpu_plan.planner.model.quantization.words import is_bitsandbytes
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.checks import check_workload
from gpu_plan.planner.options.degrees.context import check_context, check_ranks, check_split, pinned_context
from gpu_plan.planner.options.degrees.megatron import check_product, check_schedule, runs_own_model
from gpu_plan.planner.options.degrees.pipeline import (
    check_pipeline,
    check_stages,
    pinned_pipeline,
    piped_strategy,
    with_even_stages,
)
from gpu_plan.planner.options.settings import parse_settings
from gpu_plan.planner.options.stacks import check_stack
from gpu_plan.planner.options.values import choice, positive
from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.strategy.known import (
    expert_parallel,
    meant_by,
    replicating,
    tensor_parallel,
    traits_of,
    unsharded,
)
from gpu_plan.planner.strategy.traits import Offload, Traits
from gpu_plan.planner.workload.adapters import NO_ADAPTERS, Peft, adapter_options, adapters_on
from gpu_plan.planner.workload.optimizers.registry import DEFAULT_OPTIMIZER, Optimizer
from gpu_plan.planner.workload.optimizers.registry import NOT_BUILT as OPTIMIZERS_NOT_BUILT
from gpu_plan.planner.workload.precisions import Precision, default_precision
from gpu_plan.planner.workload.settled import Basis
from gpu_plan.planner.workload.training import (
    INSTALLED_LOSS,
    Attention,
    Checkpointing,
    Stack,
    Workload,
)

DEFAULT_SEQ_LEN = 4096

_LATER: Mapping[str, tuple[str, ...]] = {
    "--optimizer": OPTIMIZERS_NOT_BUILT,
    "--stack": ("megatron",),
}
"""Values of the interface that later versions bring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Option words as values; None where an option was not given."""

    precision: Precision | None
    optimizer: Optimizer | None
    attention: Attention | None
    stack: Stack | None
    checkpointing: Checkpointing | None
    strategy: str | None
    offload: Offload | None
    seq_len: int | None
    micro_batch: int | None
    global_batch: int | None
    grad_accum: int | None
    dp_replicate: int | None
    tensor_parallel: int | None
    expert_parallel: int | None
    context_parallel: int | None
    pipeline_parallel: int | None
    schedule: Schedule | None
    virtual_stages: int | None
    peft: Peft | None
    lora_rank: int | None
    lora_targets: tuple[str, ...] | None
    fused_loss: bool | None
    settings: tuple[tuple[str, str], ...]


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
    inference = next((key for key, _ in given.settings if key.startswith("cache.")), None)
    if inference is not None:
        raise UsageError(f"--set {inference} is about inference: add --task infer")
    if runs_own_model(given.strategy):
        check_schedule(given.schedule, given.virtual_stages, given.pipeline_parallel)
    else:
        check_context(given.context_parallel, given.strategy, _beside_context(given))
        given = _with_stages(_with_experts(_with_degrees(given)))
    _check_adapters(given)
    _check_replicas(given)
    _check_every(given.checkpointing, given.settings, given.stack)
    _check_strategy_settings(given.strategy, given.settings)
    _check_swapping(given)
    _check_pinned_memory(given.offload, given.settings)
    check_stack(given.stack, given.strategy, given.precision, given.peft)
    return given


def _beside_context(given: Given) -> dict[str, int | None]:
    """Degrees that could stand beside `--cp`."""
    return {"--tp": given.tensor_parallel, "--ep": given.expert_parallel, "--pp": given.pipeline_parallel}


def _with_degrees(given: Given) -> Given:
    """Under `--tp` a strategy is the one that it comes to in groups of ranks: `fsdp` is `fsdp_tp`. UsageError where it
    comes to none, and the other way round where a strategy of groups is given groups of one."""
    if given.strategy is None or given.tensor_parallel is None:
        return given
    traits, degree = traits_of(given.strategy), given.tensor_parallel
    if degree == 1 and traits.tensor_parallel:
        raise UsageError(f"--strategy {traits.name} and --tp 1 contradict each other")
    if degree == 1 or traits.tensor_parallel:
        return given
    grouped = next((other for other in tensor_parallel() if other.untensored == traits.name), None)
    if grouped is None:
        able = ", ".join(other.name for other in tensor_parallel())
        raise UsageError(f"--tp {degree} needs --strategy fsdp, {able} or none: {traits.name} splits no copy")
    return replace(given, strategy=grouped.name)


def _with_experts(given: Given) -> Given:
    """The same for `--ep`: `fsdp` is `fsdp_ep`."""
    experts, together = given.expert_parallel or 1, given.tensor_parallel or 1
    if experts % together and experts > 1:
        raise UsageError(
            f"--ep {experts} is no multiple of --tp {together}: ranks that share a copy hold experts together"
        )
    if given.strategy is None:
        return given
    traits = traits_of(given.strategy)
    if given.expert_parallel == 1 and traits.expert_parallel == "must":
        raise UsageError(f"--strategy {traits.name} and --ep 1 contradict each other")
    if experts == 1 or traits.expert_parallel:
        return given
    grouped = next((other for other in expert_parallel() if other.untensored == traits.name), None)
    if grouped is None:
        able = ", ".join(other.name for other in expert_parallel())
        raise UsageError(f"--ep {experts} needs --strategy fsdp, hsdp, {able} or none: {traits.name} keeps all experts")
    return replace(given, strategy=grouped.name)


def _with_stages(given: Given) -> Given:
    """Under `--pp` a strategy is the one that it comes to in stages."""
    degree, beside = given.pipeline_parallel, max(given.tensor_parallel or 1, given.expert_parallel or 1)
    check_pipeline(degree, given.strategy, given.schedule, given.virtual_stages, beside)
    return replace(given, strategy=piped_strategy(given.strategy, degree))


def _check_strategy_settings(strategy: str | None, settings: Sequence[tuple[str, str]]) -> None:
    """UsageError for a setting that says nothing about the strategy that is planned."""
    for key, _ in settings:
        meant = meant_by(key)
        if meant and strategy is not None and strategy not in meant:
            named = " and ".join(filter(None, (", ".join(meant[:-1]), meant[-1])))
            raise UsageError(f"--set {key} is about --strategy {named}, not {strategy}")


def _check_pinned_memory(offload: Offload | None, settings: Sequence[tuple[str, str]]) -> None:
    """UsageError for how offloaded state is held where nothing is offloaded."""
    if offload is Offload.NONE and "zero.pin_memory" in dict(settings):
        raise UsageError("--set zero.pin_memory is about offloaded state: add --offload optimizer, all or nvme")


_SWAPPING = (
    "zero.nvme_path", "zero.offload_param", "zero.max_in_cpu", "zero.param_buffer_count", "zero.param_buffer_size",
    "zero.optimizer_buffer_count",
)  # fmt: skip


_OF_WEIGHTS = ("zero.max_in_cpu", "zero.param_buffer_count", "zero.param_buffer_size")
"""Of those, what is about the weights alone."""


def _check_swapping(given: Given) -> None:
    """UsageError for a setting of swap files where there are none."""
    settings = dict(given.settings)
    key = next((key for key in settings if key in _SWAPPING), None)
    if key is not None and given.offload is not Offload.NVME:
        raise UsageError(f"--set {key} needs --offload nvme")
    place = settings.get("zero.offload_param", "nvme")
    key = next((key for key in settings if key in _OF_WEIGHTS), None)
    if key is not None and place != "nvme":
        raise UsageError(f"--set {key} is about weights in files, and zero.offload_param={place} keeps them elsewhere")


def _fused_loss(given: Given) -> bool:
    """Liger's kernels come with its loss (transformers' `use_liger_kernel`), unless that is declined."""
    if given.fused_loss is None:
        return dict(given.settings).get("kernels.liger") == "true"
    return given.fused_loss


def _check_every(checkpointing: Checkpointing | None, settings: Sequence[tuple[str, str]], stack: Stack | None) -> None:
    if checkpointing is Checkpointing.NONE and "checkpoint.every" in dict(settings):
        raise UsageError("--set checkpoint.every needs --checkpointing full or selective: nothing is checkpointed")
    given = dict(settings)
    if given.get("checkpoint.offload") != "true":
        return
    if checkpointing not in (None, Checkpointing.FULL) or given.get("checkpoint.every", "1") != "1":
        raise UsageError(
            "--set checkpoint.offload needs --checkpointing full of every layer: Accelerate wraps them all"
        )
    if stack is not None and stack.traits.loop != "accelerate":
        raise UsageError(
            f"--set checkpoint.offload is Accelerate's own checkpointing, which --stack {stack} does not use"
        )


def _check_replicas(given: Given) -> None:
    """UsageError for a number of replicas under a strategy that has none; 1 is what they have anyway."""
    if given.strategy is None:
        return
    traits = traits_of(given.strategy)
    if traits.replicates and given.dp_replicate == 1:
        raise UsageError(
            f"--dp-replicate 1 with --strategy {traits.name} replicates nothing: use --strategy {traits.unreplicated}"
        )
    if not traits.replicates and given.dp_replicate not in (None, 1):
        able = " or ".join(other.name for other in replicating())
        raise UsageError(f"--dp-replicate {given.dp_replicate} needs --strategy {able}: {traits.name} has no replicas")


def targets(words: str | None) -> tuple[str, ...] | None:
    """Module names separated by commas, in order, each once."""
    if words is None:
        return None
    names = tuple(dict.fromkeys(name.strip() for name in words.split(",") if name.strip()))
    if not names:
        raise UsageError(f"--lora-targets {words!r} names no module; write them with commas: q_proj,v_proj")
    if "all-linear" in names and len(names) > 1:
        raise UsageError("--lora-targets all-linear means every linear layer: give it alone")
    return names


def _check_adapters(given: Given) -> None:
    """UsageError for options that say something about adapters that there are not."""
    peft = given.peft or NO_ADAPTERS
    settings = dict(given.settings)
    for name, value in (
        ("--lora-rank", given.lora_rank),
        ("--lora-targets", given.lora_targets),
        ("--set lora.dropout", settings.get("lora.dropout")),
    ):
        if value is not None and not peft.adapts:
            raise UsageError(f"{name} needs {adapter_options()}")
    for key in ("quant.double", "quant.experts", "quant.storage", "quant.upcast"):
        if key in settings and not peft.quantises:
            needed = adapters_on(quantised=True)
            raise UsageError(f"--set {key} needs --peft {needed}: nothing else is quantised")
    if "quant.experts" in settings and settings.get("quant.base") == "int8":
        raise UsageError("--set quant.experts is about 4-bit bases, not int8")
    _check_base(peft, settings, given.strategy)


def _check_base(peft: Peft, settings: Mapping[str, str], strategy: str | None) -> None:
    """UsageError for a quantised base that the adapters cannot be trained on."""
    base = settings.get("quant.base")
    if base is None:
        return
    if not peft.adapts:
        raise UsageError(f"--set quant.base={base} needs {adapter_options()}")
    quantised = is_bitsandbytes(base)
    if peft.quantises != quantised:
        raise UsageError(f"--set quant.base={base} needs --peft {adapters_on(quantised=quantised)}, not {peft}")
    if base == "int8" and "quant.double" in settings:
        raise UsageError("--set quant.double is about 4-bit bases: int8 has one scale per row")
    if base == "int8" and strategy is not None and traits_of(strategy).wraps_blocks:
        whole = unsharded(2).name
        raise UsageError(
            f"--strategy {strategy} cannot shard bitsandbytes' int8 weights: use nf4, or --strategy {whole}"
        )


def adapter_of(given: Given, cluster: Cluster) -> Adapter | None:
    """The adapters that the options ask for, or None."""
    if given.peft is None or not given.peft.adapts:
        return None
    settings = dict(given.settings)
    return Adapter(
        peft=given.peft,
        rank=given.lora_rank or DEFAULT_RANK,
        targets=given.lora_targets or (),
        dropout=float(settings.get("lora.dropout", "0")),
        base=settings.get("quant.base", ""),
        double_quant=settings.get("quant.double") == "true",
        pack_experts=given.peft.quantises and packs_experts(given.stack, settings),
        compute_dtype=_precision(given, cluster).compute_dtype,
    )


def packs_experts(stack: Stack | None, settings: Mapping[str, str]) -> bool:
    """Whether a quantised base has its fused experts packed: as given, else as the stack does by itself."""
    own = stack is not None and stack.traits.experts == "quantised" and settings.get("quant.base") != "int8"
    return settings.get("quant.experts", str(own).lower()) == "true"


def make_workload(given: Given, pinned: bool, cluster: Cluster, spec: ModelSpec) -> Workload:
    """The job that the options describe, defaults filled in."""
    checkpointing, offload, strategy, micro_batch = (
        given.checkpointing,
        given.offload,
        given.strategy,
        given.micro_batch,
    )
    own = runs_own_model(given.strategy)
    if own:
        check_product(given.tensor_parallel, given.pipeline_parallel, given.context_parallel, cluster)
    check_stages(given.pipeline_parallel, given.strategy, cluster)
    check_ranks(given.context_parallel, given.dp_replicate, cluster)
    if given.dp_replicate not in (None, 1):
        able = [t for t in replicating() if _is_meant(t, given)]
        strategy = strategy or able[0].name
        if cluster.world_size % int(given.dp_replicate or 1):
            raise UsageError(f"--dp-replicate {given.dp_replicate} does not divide {cluster.world_size} GPUs")
    strategy = pinned_pipeline(given.pipeline_parallel, strategy, cluster) if pinned else strategy
    strategy = pinned_context(given.context_parallel, strategy) if pinned else strategy
    degree, replicas = given.tensor_parallel or 1, given.dp_replicate
    if cluster.world_size % degree:
        raise UsageError(f"--tp {degree} does not divide {cluster.world_size} GPUs")
    experts = given.expert_parallel or 1
    if cluster.world_size // (given.dp_replicate or 1) % experts:
        among = f" over {given.dp_replicate} replicas" if (given.dp_replicate or 1) > 1 else ""
        raise UsageError(f"--ep {experts} does not divide {cluster.world_size} GPUs{among}")
    if cluster.world_size % ((given.dp_replicate or 1) * degree):
        words = f"--dp-replicate {given.dp_replicate} x --tp {degree}"
        raise UsageError(f"{words} does not divide {cluster.world_size} GPUs: their product has to")
    if pinned and strategy is None and experts > 1 and degree == 1:
        strategy = next(t.name for t in expert_parallel() if t.expert_parallel == "must")
    if pinned and strategy is None and degree > 1:
        whole = degree == cluster.world_size
        strategy = next(t.name for t in tensor_parallel() if t.tensor_parallel == ("all" if whole else "some"))
    if pinned:
        checkpointing = checkpointing or Checkpointing.NONE
        _check_every(checkpointing, given.settings, given.stack)
        offload = offload or Offload.NONE
        strategy = strategy or unsharded(cluster.world_size).name
        micro_batch = micro_batch or (None if given.global_batch else 1)
        if replicas is None and traits_of(strategy).replicates and cluster.nodes > 1:
            replicas = cluster.nodes
        # What is pinned is known only here.
        _check_strategy_settings(strategy, given.settings)
        _check_pinned_memory(offload, given.settings)
    norm = dict(given.settings).get("clip.max_norm")
    workload = Workload(
        seq_len=given.seq_len or min(DEFAULT_SEQ_LEN, spec.max_positions or DEFAULT_SEQ_LEN),
        precision=_precision(given, cluster),
        optimizer=given.optimizer or _optimizer(given.stack),
        attention=given.attention or Attention.SDPA,
        stack=given.stack or Stack.ACCELERATE,
        clipping=_clips(given.stack) if norm is None else float(norm) > 0,
        max_grad_norm=None if norm is None else float(norm),
        micro_batch=micro_batch,
        global_batch=given.global_batch,
        grad_accum=given.grad_accum,
        checkpointing=checkpointing,
        strategy=strategy,
        offload=None if offload is None else str(offload),
        dp_replicate=replicas,
        tensor_parallel=1 if own and pinned and given.tensor_parallel is None else given.tensor_parallel,
        expert_parallel=1 if own and pinned and given.expert_parallel is None else given.expert_parallel,
        context_parallel=1 if pinned and given.context_parallel is None else given.context_parallel,
        pipeline_parallel=1 if own and pinned and given.pipeline_parallel is None else given.pipeline_parallel,
        schedule=_schedule(given, pinned),
        virtual_stages=given.virtual_stages,
        peft=given.peft or NO_ADAPTERS,
        lora_rank=(given.lora_rank or DEFAULT_RANK) if spec.adapted else None,
        lora_targets=spec.adapted or None,
        fused_loss=_fused_loss(given),
        loss=_loss(given, spec),
        settings=with_even_stages(given.settings, given.pipeline_parallel) if pinned and not own else given.settings,
    )
    check_workload(workload, cluster, spec)
    if not own:
        check_split(workload)
    return workload.with_basis(**_basis(given, pinned))


def _schedule(given: Given, pinned: bool) -> str | None:
    """As given; of a pinned pipeline torch's usual one, or interleaved where ranks are to hold several stages."""
    if given.schedule is not None:
        return str(given.schedule)
    if not pinned or given.pipeline_parallel in (None, 1):
        return None
    return str(Schedule.INTERLEAVED if (given.virtual_stages or 1) > 1 else Schedule.ONE_F_ONE_B)


def _is_meant(traits: Traits, given: Given) -> bool:
    """Whether a strategy with replicas is the one of the degrees that were given."""
    together, apart = (given.tensor_parallel or 1) > 1, (given.expert_parallel or 1) > 1
    return bool(traits.tensor_parallel) == together and (traits.expert_parallel == "must") == (apart and not together)


def _precision(given: Given, cluster: Cluster) -> Precision:
    """As given; else the stack's default, where it has some only; else the planner's own."""
    own = given.stack.traits.precisions if given.stack is not None else ()
    if (
        given.stack is not None
        and given.peft is not None
        and given.peft.quantises
        and not given.stack.traits.packs_mixed
    ):
        own = tuple(name for name in own if not Precision(name).is_mixed)
    return given.precision or (Precision(own[0]) if own else default_precision(cluster.gpu.supports_bf16))


def _optimizer(stack: Stack | None) -> Optimizer:
    """What a stack that was named takes by itself."""
    own = "" if stack is None else stack.traits.optimizer
    return Optimizer(own) if own else DEFAULT_OPTIMIZER


def _clips(stack: Stack | None) -> bool:
    """Whether clipping is counted where nobody says: unless the stack is known not to."""
    return stack is None or stack.traits.clip != 0


def _loss(given: Given, spec: ModelSpec) -> str:
    """As given; else the stack's own, for what it trains with it."""
    variant = dict(given.settings).get("loss.variant")
    own = "" if given.stack is None else given.stack.traits.loss
    if variant is not None or not own or _fused_loss(given) or not spec.class_name.endswith("ForCausalLM"):
        return variant or INSTALLED_LOSS
    return own


def _basis(given: Given, pinned: bool) -> dict[str, Basis]:
    """Where each value came from."""
    fixed = (
        "precision", "optimizer", "attention", "stack", "seq_len", "peft", "lora_rank", "lora_targets", "fused_loss",
    )  # fmt: skip
    searched = ("strategy", "offload", "checkpointing", "micro_batch", "grad_accum", "global_batch")
    otherwise: dict[str, Basis] = dict.fromkeys(fixed, "default")
    otherwise.update(dict.fromkeys(searched, "default" if pinned else "searched"))
    found: dict[str, Basis] = {
        name: basis if getattr(given, name) is None else "given" for name, basis in otherwise.items()
    }
    clipped: Basis = "given" if "clip.max_norm" in dict(given.settings) else "default"
    return {**found, "clipping": clipped, "max_grad_norm": clipped}
