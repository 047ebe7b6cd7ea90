"""verl's Megatron workers: the actor and its reference as a document has them, or the actor's update by itself.

verl 0.8.0.dev (b178a3cd): verl/workers/megatron_workers.py (ActorRolloutRefWorker; samples are divided by the data
parallel ranks), verl/trainer/config/engine/megatron.yaml and ref/megatron_ref.yaml (defaults: a reference's degrees are
the actor's), verl/utils/megatron_utils.py (get_model: the distributed optimizer, gradients in fp32, nothing overlapped;
offload_megatron_model_to_cpu: weights go with param_offload and gradients are given up, whatever grad_offload says),
verl/workers/actor/megatron_actor.py (a dynamic batch has the tokens of all ranks that share its sequences). mbridge
(10cb17f) asks for no fusion of gradients (LLMBridge._build_base_config), and for one of gates beside experts alone
(Qwen2MoEBridge); Megatron-core by itself keeps what is sent on (deallocate_pipeline_outputs).
"""

from collections.abc import Iterator

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.documents.asked import Asked
from gpu_plan.planner.from_config.documents.of_verl.cuts import ACTOR, MEGATRON, MODEL, REF, copy_devices, devices
from gpu_plan.planner.from_config.documents.written import Table
from gpu_plan.planner.visible import visible
from gpu_plan.planner.workload.precisions import mixed_in

USUAL: dict[str, object] = {
    f"{ACTOR}.strategy": MEGATRON, "critic.strategy": MEGATRON, "reward_model.strategy": MEGATRON,
    f"{MODEL}.enable_gradient_checkpointing": False, f"{ACTOR}.megatron.tensor_model_parallel_size": 1,
}  # fmt: skip
"""What its configuration for Megatron says otherwise than that for FSDP."""
PASSED = tuple(
    f"{whose}.megatron.{key}"
    for whose in (ACTOR, REF, "critic")
    for key in ("grad_offload", "seed", "use_dist_checkpointing", "dist_checkpointing", "use_remove_padding")
)
CRITIC, _OWN = "critic", f"{ACTOR}.megatron"
_OVERRIDES = ".megatron.override_transformer_config"
_DEGREES = (
    ("--tp", "tensor_parallel", "tensor_model_parallel_size"),
    ("--pp", "pipeline_parallel", "pipeline_model_parallel_size"),
    ("--cp", "context_parallel", "context_parallel_size"),
    ("--ep", "expert_parallel", "expert_model_parallel_size"),
    ("--vpp", "virtual_stages", "virtual_pipeline_model_parallel_size"),
)  # fmt: skip
"""Options and a document's keys by words of its Megatron's workers."""
_COUNTS = (
    ("megatron.recompute_layers", "recompute_num_layers"),
    ("megatron.first_layers", "num_layers_in_first_pipeline_stage"),
    ("megatron.last_layers", "num_layers_in_last_pipeline_stage"),
)  # fmt: skip
_FLAGS = (
    ("megatron.gradient_fusion", "gradient_accumulation_fusion", False),
    ("megatron.deallocate_outputs", "deallocate_pipeline_outputs", False),
    ("megatron.embedding_counts", "account_for_embedding_in_pipeline_split", None),
    ("megatron.loss_counts", "account_for_loss_in_pipeline_split", None),
)  # fmt: skip
"""Settings by words of its Megatron's workers, and what stands where the file says nothing; None: nothing is said."""
_GATES, _SPLIT = "bias_activation_fusion", "expert_tensor_parallel_size"
_FUSED = (
    "apply_rope_fusion", "masked_softmax_fusion", "bias_dropout_fusion", "persist_layer_norm", "moe_grouped_gemm",
    "moe_permute_fusion", "moe_router_dtype", "use_cpu_initialization", "attention_backend",
)  # fmt: skip
"""Overrides that are what is planned, or change no tensor that stands."""


def of_megatron(asked: Asked, what: str) -> InputError:
    """What to raise for a job that a document does not have, with the command that plans the actor's update alone."""
    options = [word for option, key, _ in _DEGREES if (degree := _said(asked, key)) for word in (option, str(degree))]
    if "--pp" in options and "--vpp" not in options:
        options += ["--vpp", "1"]
    flash = [] if asked.says(f"{ACTOR}{_OVERRIDES}.attention_backend") else ["--attention", "flash"]
    sets = (word for setting in _settings(asked, ACTOR) for word in ("--set", setting))
    words = ["--strategy", MEGATRON, *options, *flash, "--checkpointing", _checkpointing(asked, ACTOR), *sets]
    return InputError(
        f"{asked.where}: {what}, which a document does not have for Megatron's workers; the actor's update by itself:"
        f" plan MODEL --gpus SPEC {' '.join(words)}"
    )


def check(asked: Asked, estimator: str) -> None:
    """InputError for what would be planned as something else."""
    if not asked.knows(f"{_OWN}.tensor_model_parallel_size"):
        raise of_megatron(asked, f"{ACTOR}.strategy is {MEGATRON} in a configuration of FSDP's workers")
    if has_critic(asked, estimator):
        _check_degrees(asked, CRITIC, "a critic")
    if asked.flag("reward_model.enable"):
        raise of_megatron(asked, "reward_model.enable: a second engine")
    if asked.flag(f"{MODEL}.mtp.enable"):
        raise of_megatron(asked, "mtp.enable: layers that predict further tokens")
    if asked.count(f"{MODEL}.lora.rank") or asked.count(f"{MODEL}.lora_rank"):
        raise of_megatron(asked, "lora: adapters")
    if (_said(asked, "virtual_stages") or 1) > 1:
        raise of_megatron(asked, "virtual stages: their passes forward only")
    _check_degrees(asked, REF, "a reference")
    aside = f"{ACTOR}.optim.override_optimizer_config.optimizer_cpu_offload"
    if asked.flag(aside):
        raise of_megatron(asked, "optimizer_cpu_offload: an optimizer that steps on the host")
    if not _bridged(asked):
        asked.aside.append("weights go to the engine as mbridge sends them: verl's own generator was not read")
    if devices(asked) % copy_devices(asked):
        raise InputError(
            f"{asked.where}: its degrees make copies of {copy_devices(asked)} devices, which do not divide the"
            f" {devices(asked)} of trainer.n_gpus_per_node and trainer.nnodes"
        )


def has_critic(asked: Asked, estimator: str) -> bool:
    """Whether a critic is trained too."""
    enabled = asked.text("critic.enable")
    return (estimator == "gae" and enabled is None) or enabled == "True"


def _check_degrees(asked: Asked, whose: str, what: str) -> None:
    """InputError for a model of other degrees than the actor's. Where the file says none they are the actor's: the
    models' workers share a process, and the first of them initializes it (megatron_workers.py: CriticWorker.__init__;
    ray_trainer.py: init_workers)."""
    for word in (*(word for _, _, word in _DEGREES), _SPLIT):
        own, others = f"{whose}.megatron.{word}", f"{_OWN}.{word}"
        degree = (asked.count(own) or 1) if asked.says(own) else None
        if degree not in (None, (asked.count(others) or 1) if asked.says(others) else 1):
            raise of_megatron(asked, f"{own} is {degree}: {what} of other degrees than the actor's")


def _bridged(asked: Asked) -> bool:
    keys = (f"{_OWN}.use_mbridge", f"{_OWN}.vanilla_mbridge")
    return all(asked.flag(key) if asked.says(key) else True for key in keys)


def actor(asked: Asked, model: str, whose: str = ACTOR) -> Table:
    """A trained model, with what of it is moved to the host between its phases."""
    found: Table = {
        **_workers(asked, model, whose),
        "train": True,
        "checkpointing": _checkpointing(asked, whose),
        "settings": list(_settings(asked, whose)),
    }
    own = f"{whose}.megatron"
    weights, states = asked.flag(f"{own}.param_offload"), asked.flag(f"{own}.optimizer_offload")
    if weights or states:
        found["between"] = "host" if weights and states else "optimizer" if weights else "gradients"
    return found


def critic(asked: Asked, model: str) -> Table:
    """The other trained one, which ends in a number for each token."""
    return {**actor(asked, asked.text("critic.model.path") or model, CRITIC), "head": "value"}


def reference(asked: Asked, model: str) -> Table:
    """The frozen one."""
    own, others = f"{REF}.megatron.param_offload", f"{_OWN}.param_offload"
    away = asked.flag(own) if asked.says(own) else asked.flag(others)
    return {**_workers(asked, model, ACTOR), **({"between": "host"} if away else {})}


def _workers(asked: Asked, model: str, whose: str) -> Table:
    degrees = {
        key: degree for _, key, _ in _DEGREES[:4] if (degree := _said(asked, key))
    }  # all models have the actor's
    for key in ("tensor_parallel", "pipeline_parallel"):
        degrees.setdefault(key, 1)
    flash: Table = {} if asked.says(f"{whose}{_OVERRIDES}.attention_backend") else {"attention": "flash"}
    return {"model": model, "strategy": MEGATRON, **degrees, "precision": mixed_in("bfloat16"), **flash}


def _said(asked: Asked, key: str) -> int | None:
    word = f"{_OWN}.{next(word for _, own, word in _DEGREES if own == key)}"
    return asked.count(word) if asked.says(word) else None


def _checkpointing(asked: Asked, whose: str) -> str:
    return visible((asked.text(f"{whose}{_OVERRIDES}.recompute_granularity") or "none")[:20])


def _settings(asked: Asked, whose: str) -> Iterator[str]:
    """Words of `--set`."""
    if whose == ACTOR:
        entropy = asked.number(f"{ACTOR}.entropy_coeff")
        loss = "verl-fused" if asked.flag(f"{MODEL}.use_fused_kernels") else "verl-entropy" if entropy else "verl"
        yield f"megatron.cross_entropy={loss}"
    yield "megatron.overlap=false"
    yield "megatron.mtp_layers=0"  # config_converter.py asks for none; hf_model.yaml: mtp.enable is false
    for setting, key, usual in _FLAGS:
        own = f"{whose}{_OVERRIDES}.{key}"
        flag = asked.flag(own) if asked.says(own) else usual
        if flag is not None:
            yield f"{setting}={str(flag).lower()}"
    experts = (_said(asked, "expert_parallel") or 1) > 1
    fused = asked.flag(f"{whose}{_OVERRIDES}.{_GATES}") if asked.says(f"{whose}{_OVERRIDES}.{_GATES}") else experts
    if not fused:
        yield "megatron.activation_fusion=false"
    for setting, key in _COUNTS:
        if _checkpointing(asked, whose) != "full" and setting == "megatron.recompute_layers":
            continue
        if asked.says(f"{whose}{_OVERRIDES}.{key}") and (count := asked.count(f"{whose}{_OVERRIDES}.{key}")):
            yield f"{setting}={count}"
    yield from _further(asked, whose)


def _further(asked: Asked, whose: str) -> Iterator[str]:
    """Those that stand where the file says them alone."""
    for setting, key in (("recompute_method", "recompute_method"), ("dispatcher", "moe_token_dispatcher_type")):
        word = asked.text(f"{whose}{_OVERRIDES}.{key}") if asked.says(f"{whose}{_OVERRIDES}.{key}") else None
        if word and (setting != "recompute_method" or _checkpointing(asked, whose) == "full"):
            yield f"megatron.{setting}={visible(word[:20])}"
    shared = (("sequence_parallel", "sequence_parallel"), ("distributed_optimizer", "use_distributed_optimizer"))
    for setting, key in shared:
        if asked.says(f"{whose}.megatron.{key}") and not asked.flag(f"{whose}.megatron.{key}"):
            yield f"megatron.{setting}=false"
    split = asked.count(f"{whose}.megatron.{_SPLIT}") if asked.says(f"{whose}.megatron.{_SPLIT}") else None
    if split and (_said(asked, "expert_parallel") or 1) > 1:
        yield f"megatron.expert_tensor={split}"
    for key in _FUSED:
        asked.value(f"{whose}{_OVERRIDES}.{key}")
