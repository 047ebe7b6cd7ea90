"""What of verl's Megatron workers can be planned: the actor's update by itself.

verl 0.8.0.dev (b178a3cd): verl/workers/megatron_workers.py (ActorRolloutRefWorker), verl/trainer/config/engine/
megatron.yaml (defaults), verl/utils/megatron_utils.py (get_model: the distributed optimizer, gradients in fp32, nothing
overlapped). mbridge (10cb17f) asks for no fusion of gradients (LLMBridge._build_base_config), and for one of gates
beside experts alone (Qwen2MoEBridge); Megatron-core by itself keeps what is sent on (deallocate_pipeline_outputs).
"""

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.documents.asked import Asked
from gpu_plan.planner.from_config.documents.of_verl.cuts import ACTOR
from gpu_plan.planner.strategy.known import strategy_by
from gpu_plan.planner.strategy.traits import Engine
from gpu_plan.planner.visible import visible

MEGATRON = strategy_by(Engine.MEGATRON, stage=1).name
_OWN = f"{ACTOR}.megatron"
_OVERRIDES = f"{_OWN}.override_transformer_config"
_DEGREES = (
    ("--tp", "tensor_model_parallel_size"), ("--pp", "pipeline_model_parallel_size"),
    ("--cp", "context_parallel_size"), ("--ep", "expert_model_parallel_size"),
    ("--vpp", "virtual_pipeline_model_parallel_size"),
)  # fmt: skip
"""Options by words of its Megatron's workers."""
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
_GATES = "bias_activation_fusion"


def of_megatron(asked: Asked, what: str) -> InputError:
    """What to raise for Megatron's workers, with the command that plans the actor's update alone.

    verl/workers/actor/megatron_actor.py: forward_backward_batch runs the pipeline's schedule forward only for
    log-probabilities, and verl/utils/megatron_utils.py offloads whole buffers of gradients.
    """
    return InputError(
        f"{asked.where}: {what}: Megatron's workers run log-probabilities forward only, which a document has for FSDP's"
        f" alone; the actor's update by itself: plan MODEL --gpus SPEC {' '.join(_words(asked))}"
    )


def _words(asked: Asked) -> list[str]:
    """Options of the actor's update."""
    words = ["--strategy", MEGATRON]
    for option, key in _DEGREES:
        if asked.says(f"{_OWN}.{key}") and (degree := asked.count(f"{_OWN}.{key}")):
            words += [option, str(degree)]
    if "--pp" in words and "--vpp" not in words:
        words += ["--vpp", "1"]
    if not asked.says(f"{_OVERRIDES}.attention_backend"):
        words += ["--attention", "flash"]
    checkpointing = asked.text(f"{_OVERRIDES}.recompute_granularity") or "none"
    words += ["--checkpointing", visible(checkpointing[:20])]
    entropy = asked.number(f"{ACTOR}.entropy_coeff")
    settings = {"megatron.cross_entropy": "verl-entropy" if entropy else "verl", "megatron.overlap": "false"}
    for setting, key, usual in _FLAGS:
        own = f"{_OVERRIDES}.{key}"
        found = asked.flag(own) if asked.says(own) else usual
        settings |= {} if found is None else {setting: str(found).lower()}
    experts = (asked.count(f"{_OWN}.expert_model_parallel_size") or 1) > 1
    fused = asked.flag(f"{_OVERRIDES}.{_GATES}") if asked.says(f"{_OVERRIDES}.{_GATES}") else experts
    settings |= {} if fused else {"megatron.activation_fusion": "false"}
    for setting, key in _COUNTS:
        if checkpointing != "full" and setting == "megatron.recompute_layers":
            continue
        if asked.says(f"{_OVERRIDES}.{key}") and (count := asked.count(f"{_OVERRIDES}.{key}")):
            settings[setting] = str(count)
    return [*words, *(word for name, value in settings.items() for word in ("--set", f"{name}={value}"))]
