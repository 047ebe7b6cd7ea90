"""`--set megatron.*` and the options of a job as a layout of Megatron-core."""

from collections.abc import Mapping

from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Attention, Layout
from gpu_plan.planner.units import ceil_div

_HOPPER = (9, 0)


def flag(settings: Mapping[str, str], key: str, default: bool) -> bool:
    """A setting that is true or false."""
    return settings.get(f"megatron.{key}", str(default).lower()) == "true"


def number(settings: Mapping[str, str], key: str) -> int | None:
    """A setting that is a count; None where it is not given."""
    found = settings.get(f"megatron.{key}")
    return None if found is None else int(found)


def share(settings: Mapping[str, str], key: str) -> float | None:
    """A setting that is a share; None where it is not given, or 0."""
    return float(settings.get(f"megatron.{key}", "0")) or None


def gradient_bytes(settings: Mapping[str, str], half: str) -> int:
    """Of an element of the buffers that gradients are added to: where nothing is said fp32 beside bf16 weights,
    and fp16 beside fp16 ones (megatron/training/arguments.py: validate_args)."""
    asked = settings.get("megatron.grad_dtype", "bfloat16" if half == "float16" else "float32")
    return 2 if asked == "bfloat16" else 4


def attention_kernel(asked: str, capability: tuple[int, int] | None) -> Attention:
    """What `--attention-backend` comes to; by itself Transformer Engine takes cuDNN's kernels from Hopper on, flash
    attention before (dot_product_attention/utils.py: get_attention_backend)."""
    if asked == "eager":
        return "unfused"
    if asked == "flash":
        return "flash"
    return "fused" if (capability or (0, 0)) >= _HOPPER else "flash"


def refused(model: Architecture, layout: Layout, seq_len: int) -> str | None:
    """Why degrees do not fit the model, in one line; None where they do."""
    tensor, context = layout.tensor, layout.context
    if model.heads % tensor:
        return f"--tp {tensor} does not divide {model.heads} attention heads"
    if model.groups % tensor and tensor % model.groups:
        return f"--tp {tensor} does not go with {model.groups} heads of keys and values"
    if model.latent is not None and layout.attention == "flash":
        return (
            "keys of multi-latent attention are wider than its values, which FlashAttention 2 has no kernel for:"
            " --attention sdpa on Hopper or later, --attention eager elsewhere"
        )
    if model.intermediate % tensor:
        return f"--tp {tensor} does not divide the intermediate size {model.intermediate}"
    if seq_len % (2 * context if context > 1 else 1) or (layout.sequence and (seq_len // context) % tensor):
        multiple = (2 * context if context > 1 else 1) * (tensor if layout.sequence else 1)
        return f"--seq-len {seq_len} does not divide over its ranks: give {ceil_div(seq_len, multiple) * multiple}"
    parts = _refused_parts(model, layout)
    if parts is not None:
        return f"--set megatron.recompute_modules: {parts}"
    if context > 1 and layout.attention in ("unfused", "local"):
        return f"--cp {context} needs kernels that share tokens: --attention sdpa or flash, not eager"
    odd = _odd_in_float8(model, layout)
    if odd is not None:
        return f"--precision fp8-mixed: a rank's {odd} is no multiple of {_FLOAT8_ROWS}, which its products need"
    return _refused_exchange(model, layout) or _refused_experts(model, layout)


_FLOAT8_ROWS = 16
"""transformer_engine/pytorch/utils.py: assert_dim_for_fp8_exec."""


def _odd_in_float8(model: Architecture, layout: Layout) -> str | None:
    """The first width of a rank's linear layers that float8 products do not take, in words; None: they take all."""
    if layout.float8 == "none":
        return None
    widths = {"hidden size": model.hidden, "intermediate size": model.intermediate // layout.tensor}
    if model.experts is not None:
        widths["expert's intermediate size"] = model.experts.width // layout.expert_tensor
    return next((f"{name} {width}" for name, width in widths.items() if width % _FLOAT8_ROWS), None)


def _refused_exchange(model: Architecture, layout: Layout) -> str | None:
    """Why heads cannot be exchanged for tokens in one line (context_parallel.py: attn_forward_func_with_cp,
    AttnFuncWithCPAndQKVOA2A of Transformer Engine 2.11)."""
    if layout.context == 1 or layout.context_comm != "a2a":
        return None
    asked = "--set megatron.context_comm=a2a"
    if model.latent is not None:
        return f"{asked}: Transformer Engine does not exchange heads of multi-latent attention: plan with p2p"
    own = [count // layout.tensor for count in (model.heads, model.groups)]
    odd = next((heads for heads in own if heads % layout.context), None)
    what = "heads of keys and values" if odd == own[1] and own[1] != own[0] else "heads"
    return None if odd is None else f"{asked}: --cp {layout.context} does not divide a rank's {odd} {what}"


def refused_instances(settings: Mapping[str, str], model: Architecture, layout: Layout, world: int) -> str | None:
    """Why states cannot be kept in so many sharded copies, in one line; None where they can
    (megatron/core/parallel_state.py: initialize_model_parallel, initialize_expert_model_parallel)."""
    instances = number(settings, "optimizer_instances") or 1
    asked = f"--set megatron.optimizer_instances={instances}"
    if instances == 1:
        return None
    if not flag(settings, "distributed_optimizer", True):
        return f"{asked} is about the distributed optimizer: drop megatron.distributed_optimizer=false"
    dense = world // (layout.tensor * layout.pipeline)
    own = world // (layout.expert * layout.expert_tensor * layout.pipeline)
    groups = (dense, own) if model.experts is not None else (dense,)
    odd = next((ranks for ranks in groups if ranks % instances), None)
    return None if odd is None else f"{asked} does not divide {odd} data parallel ranks"


def _refused_parts(model: Architecture, layout: Layout) -> str | None:
    """Parts of a layer that are to be run again, and that the model does not have."""
    asked = layout.recompute_modules if layout.recompute == "selective" else ()
    experts = model.experts
    if layout.float8 == "delayed" and {"layernorm", "moe_act"} & set(asked):
        return "delayed scaling cannot run norms and activations again: --set megatron.fp8_recipe=tensorwise"
    without = next((part for part in asked if part in ("moe", "moe_act") and experts is None), None)
    if without is not None:
        return f"this model has no experts, which {without} is of"
    if "shared_experts" in asked and (experts is None or not experts.shared_width):
        return "this model has no shared experts"
    if "mla_up_proj" in asked and model.latent is None:
        return "mla_up_proj is of latent attention, which this model does not have"
    if "moe_act" in asked and not layout.grouped:
        return "moe_act is run again beside grouped products alone: drop --set megatron.grouped_experts=false"
    return None


def _refused_experts(model: Architecture, layout: Layout) -> str | None:
    experts = model.experts
    if experts is None and layout.expert > 1:
        return f"--ep {layout.expert}: this model has no experts to share out"
    if experts is None and layout.expert_tensor > 1:
        return f"--set megatron.expert_tensor={layout.expert_tensor}: this model has no experts to split"
    if experts is None:
        return None
    if not layout.fused_activation:
        return "--set megatron.activation_fusion=false is about dense layers: experts' gates are planned in one kernel"
    if experts.count % layout.expert:
        return f"--ep {layout.expert} does not divide {experts.count} experts"
    if experts.width % layout.expert_tensor:
        return f"--set megatron.expert_tensor={layout.expert_tensor} does not divide an expert's {experts.width}"
    if experts.shared_width % layout.tensor:
        return f"--tp {layout.tensor} does not divide the {experts.shared_width} of the experts that all tokens go to"
    if layout.tensor > 1 and not layout.sequence:
        return "experts beside --tp need sequence parallel (Megatron refuses them without): drop the setting"
    if layout.load != 1:
        return _refused_load(layout) or _refused_dispatcher(layout)
    return _refused_dispatcher(layout)


def _refused_load(layout: Layout) -> str | None:
    """Why a rank's experts cannot be chosen so often, in one line."""
    asked = f"--set megatron.expert_load={layout.load:g}"
    if layout.expert == 1:
        return f"{asked}: every rank has all experts, hence all their tokens: add --ep"
    if layout.capacity is not None:
        return f"{asked}: --set megatron.expert_capacity gives every expert as many tokens: drop one of them"
    if not 0 < layout.load <= layout.expert:
        return f"{asked}: give a share above 0, and at most {layout.expert}, which is every token to one of its ranks"
    return None


def _refused_dispatcher(layout: Layout) -> str | None:
    if layout.dispatcher == "flex":
        return (
            "--set megatron.dispatcher=flex sends tokens by DeepEP, HybridEP or NCCL's own kernels, whose buffers lie"
            " outside of torch's allocator and are sized on the machine: plan with alltoall"
        )
    if layout.dispatcher == "allgather" and layout.capacity is not None:
        return "--set megatron.expert_capacity pads what alltoall sends: drop --set megatron.dispatcher=allgather"
    return None
