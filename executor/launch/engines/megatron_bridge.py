"""Megatron-Bridge: the plan as a recipe, a module with one function that returns its ConfigContainer.

The fields are Megatron-core's own (TransformerConfig, DistributedDataParallelConfig, OptimizerConfig), under the names
that Megatron-LM's flags have with underscores. The recipe was not run here: Megatron-Bridge needs CUDA.
"""

from itertools import takewhile

from gpu_plan.executor.launch.engines.megatron_lm import planned_words
from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.launch.render import header
from gpu_plan.executor.launch.target import Target
from gpu_plan.planner.errors import UsageError

RECIPE = "recipe.py"
_PROVIDER = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "cp_comm_type",
    "mtp_num_layers",
    "expert_model_parallel_size", "expert_tensor_parallel_size", "sequence_parallel", "recompute_granularity",
    "recompute_modules", "recompute_method", "recompute_num_layers", "cross_entropy_loss_fusion",
    "cross_entropy_fusion_impl",
    "moe_grouped_gemm", "moe_permute_fusion", "moe_token_dispatcher_type", "moe_router_dtype",
    "moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity", "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split", "seq_length", "hidden_dropout", "attention_dropout",
)  # fmt: skip
_UNMAPPED = frozenset({"GPT2LMHeadModel", "MixtralForCausalLM", "Phi3ForCausalLM"})
"""Classes that GPTModel is planned for, and megatron/bridge/models at 067f987df registers nothing for."""
_LISTS = frozenset({"recompute_modules"})
_RENAMED = {
    "num_virtual_stages_per_pipeline_rank": None,
    "microbatch_group_size_per_virtual_pipeline_stage": "microbatch_group_size_per_vp_stage",
    "decoder_first_pipeline_num_layers": "num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": "num_layers_in_last_pipeline_stage",
}


def launch_files(target: Target) -> LaunchFiles:
    """One Python file."""
    planned = planned_words(target, "megatron-bridge")
    if target.saved.model.class_name in _UNMAPPED:
        raise UsageError(
            f"--to megatron-bridge: Megatron-Bridge has no mapping of {target.saved.model.class_name}: --to megatron-lm"
            " writes its arguments"
        )
    given = _flags(planned)
    words = {name: given[name] for name in _PROVIDER if name in given}
    words.update({new: given[old] for old, new in _RENAMED.items() if new is not None and old in given})
    if "no_gradient_accumulation_fusion" in given:
        words["gradient_accumulation_fusion"] = False
    if "fp8_format" in given:
        words |= {"fp8": given["fp8_format"], "fp8_recipe": given["fp8_recipe"]}
        words |= {"fp8_param": True} if "fp8_param_gather" in given else {}
    virtual = given.get("num_virtual_stages_per_pipeline_rank")
    if virtual is not None:
        words["virtual_pipeline_model_parallel_size"] = virtual
    ddp: dict[str, object] = {
        "use_distributed_optimizer": "use_distributed_optimizer" in given,
        "overlap_grad_reduce": "overlap_grad_reduce" in given,
        "overlap_param_gather": "overlap_param_gather" in given,
        "grad_reduce_in_fp32": "accumulate_allreduce_grads_in_fp32" in given
        or ("--bf16" in planned and "grad_reduce_in_bf16" not in given),
    }
    if "fp8_param_gather" in given:
        ddp["fp8_param_gather"] = True
    if "num_distributed_optimizer_instances" in given:
        ddp["num_distributed_optimizer_instances"] = given["num_distributed_optimizer_instances"]
    optimizer = {"use_precision_aware_optimizer": True} if "use_precision_aware_optimizer" in given else {}
    train = {name: given[name] for name in ("micro_batch_size", "global_batch_size")}
    lines = [
        f"{header(target.made_by)}from megatron.bridge import AutoBridge",
        "",
        "",
        "def apply(config):",
        '    """Sets what the plan says in a ConfigContainer of Megatron-Bridge; the rest stays as it is."""',
        *(f"    config.model.{name} = {value!r}" for name, value in words.items()),
        *(f"    config.ddp.{name} = {value!r}" for name, value in ddp.items()),
        *(f"    config.optimizer.{name} = {value!r}" for name, value in optimizer.items()),
        *(f"    config.train.{name} = {value!r}" for name, value in train.items()),
        "    return config",
        "",
        "",
        "def model():",
        '    """The model as Megatron-core builds it."""',
        f"    return AutoBridge.from_hf_pretrained({given.get('tokenizer_model', '')!r}).to_megatron_provider()",
        "",
    ]
    kept = ("the recipe was not run here: its fields are Megatron-core's, the rest of the ConfigContainer is yours",)
    return LaunchFiles(engine="megatron-bridge", files={RECIPE: "\n".join(lines)}, not_applied=kept)


def _flags(words: tuple[str, ...]) -> dict[str, object]:
    """Flags by their names with underscores; one without a value is True, one that takes several a list."""
    found: dict[str, object] = {}
    for place, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name = word[2:].replace("-", "_")
        after = [_number(each) for each in takewhile(lambda each: not each.startswith("--"), words[place + 1 :])]
        found[name] = after if name in _LISTS else after[0] if after else True
    return found


def _number(word: str) -> object:
    """A number as one, anything else as it is."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
