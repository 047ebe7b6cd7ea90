"""The keys of `--set KEY=VALUE`: what they mean, what values they take, and which are still to come."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from gpu_plan.planner.context.split import ROTATIONS
from gpu_plan.planner.errors import InputError, NotBuiltError, UsageError
from gpu_plan.planner.hardware.user_gpus import NETWORKS
from gpu_plan.planner.model.quantization.words import trainable_base
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.units import parse_bytes
from gpu_plan.planner.workload.losses import LOSSES

_LARGEST = 10**13


@dataclass(frozen=True, slots=True)
class Setting:
    """One key."""

    kind: Literal[
        "flag",
        "elements",
        "rate",
        "count",
        "size",
        "mib",
        "power",
        "choice",
        "choices",
        "padding",
        "scheme",
        "path",
        "norm",
    ]
    """`flag`: true or false; `elements`: a number of tensor elements; `rate`: at least 0, below 1; `count`: 1 or more;
    `size`: bytes, with or without a unit; `mib`: whole MiB; `power`: 0 or a power of two; `choice`: of `choices`;
    `choices`: some of them, commas between;
    `padding`: none, longest or a rate; `scheme`: a word of `--quantize` that adapters are trained on; `path`: a path,
    kept as it is written; `norm`: a number of 0 or more."""
    meaning: str
    least: int = 0
    choices: tuple[str, ...] = ()


SETTINGS: Mapping[str, Setting] = {
    "fsdp.reshard_after_forward": Setting("flag", "whether FSDP2 frees gathered parameters after forward (true)"),
    "fsdp.sync_each_batch": Setting(
        "flag",
        "whether FSDP reduces gradients in every micro step, as sync_each_batch of Accelerate's"
        " GradientAccumulationPlugin and loops without no_sync do (false)",
    ),
    "fsdp.use_orig_params": Setting(
        "flag",
        "whether FSDP1's parameters look as the model has them, as Accelerate asks; without, zero_grad frees what they"
        " keep of gradients until forward (true)",
    ),
    "dtype.params": Setting(
        "choice",
        "type in which a model was loaded that trains under autocast; gradients and optimizer state follow (float32)",
        choices=("float32", "bfloat16"),
    ),
    "dtype.reduce": Setting(
        "choice",
        "type in which FSDP reduces gradients, reduce_dtype of its mixed precision (the gradients' own)",
        choices=("float32", "bfloat16"),
    ),
    "cp.rotation": Setting(
        "choice",
        "how keys and values go round under --cp: gathered from all ranks at once, or one neighbour's after the other"
        " (allgather)",
        choices=ROTATIONS,
    ),
    "pipeline.split": Setting(
        "choice",
        "how layers are shared out over a pipeline's stages: as many for each, or fewer where embedding, head and loss"
        " take time as well (both are tried)",
        choices=("even", "balanced"),
    ),
    "megatron.sequence_parallel": Setting(
        "flag", "whether tensor parallel ranks share out tokens between layers (true)"
    ),
    "megatron.distributed_optimizer": Setting("flag", "whether Megatron's data parallel ranks share out states (true)"),
    "megatron.optimizer_instances": Setting(
        "count", "copies of the sharded states, each over so many fewer of Megatron's data parallel ranks (1)", 1
    ),
    "megatron.group_size": Setting(
        "count", "micro batches of a group of the interleaved schedule (as many as pipeline ranks)", 1
    ),
    "megatron.context_comm": Setting(
        "choice",
        "how Megatron's ranks share tokens under --cp: keys and values go round, or heads are exchanged (p2p)",
        choices=("p2p", "a2a"),
    ),
    "megatron.overlap": Setting(
        "flag", "whether gradients are reduced beside backward, and gathered beside forward (true)"
    ),
    "megatron.recompute_method": Setting(
        "choice",
        "which layers --checkpointing full runs again: all, in chunks, or some (uniform)",
        choices=("uniform", "block"),
    ),
    "megatron.recompute_layers": Setting(
        "count", "layers of a chunk (uniform), or of a stage that are run again (1)", 1
    ),
    "megatron.recompute_modules": Setting(
        "choices",
        "what of a layer --checkpointing selective runs again, commas between (core_attn)",
        choices=("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts"),
    ),
    "megatron.cross_entropy": Setting(
        "choice",
        "whose loss over a shared vocabulary: Megatron-core's, its fused one, Transformer Engine's, or that of verl's"
        " actor, without or with a gradient of its entropy, or in one with the head (unfused)",
        choices=("unfused", "native", "te", "verl", "verl-entropy", "verl-fused"),
    ),
    "megatron.gradient_fusion": Setting("flag", "whether products add weights' gradients to their buffer (true)"),
    "megatron.activation_fusion": Setting("flag", "whether a dense layer's gate is one kernel (true)"),
    "megatron.deallocate_outputs": Setting(
        "flag", "whether a stage empties what it has sent on, as Megatron-LM does; Megatron-core alone does not (true)"
    ),
    "megatron.grad_dtype": Setting(
        "choice",
        "type of the buffer of gradients (float32; fp16 beside fp16-mixed)",
        choices=("float32", "bfloat16"),
    ),
    "megatron.precision_aware": Setting(
        "flag", "whether the optimizer keeps of main parameters what the 16-bit ones lack (false)"
    ),
    "megatron.moments_dtype": Setting(
        "choice",
        "type of both moments of a precision-aware optimizer (float32)",
        choices=("float32", "bfloat16", "float16", "float8"),
    ),
    "megatron.mtp_layers": Setting(
        "count", "layers of Megatron's last stage that predict further tokens (as the model's configuration has it)", 0
    ),
    "megatron.fp8_recipe": Setting(
        "choice",
        "how Transformer Engine scales float8 operands under --precision fp8-mixed: by the largest values of steps"
        " before, or of the tensor itself (delayed)",
        choices=("delayed", "tensorwise"),
    ),
    "megatron.fp8_params": Setting("flag", "whether Megatron's linear layers keep and gather float8 weights (false)"),
    "megatron.expert_tensor": Setting("count", "ranks that hold one expert together (1)", 1),
    "megatron.dispatcher": Setting(
        "choice",
        "how Megatron's tokens get to the ranks of their experts (alltoall)",
        choices=("alltoall", "allgather", "flex"),
    ),
    "megatron.router_dtype": Setting(
        "choice", "type in which Megatron's router computes (float32)", choices=("float32", "bfloat16")
    ),
    "megatron.grouped_experts": Setting("flag", "whether a rank's experts are one grouped product (true)"),
    "megatron.expert_capacity": Setting(
        "norm", "tokens that an expert takes at most, of an even share; others are dropped, 0: none (0)"
    ),
    "megatron.expert_load": Setting("norm", "tokens that come to a rank's experts, of an even share (1)"),
    "megatron.first_layers": Setting("count", "layers of the first pipeline rank (as many as others)", 1),
    "megatron.last_layers": Setting("count", "layers of the last pipeline rank (as many as others)", 1),
    "megatron.embedding_counts": Setting("flag", "whether the first stage has a layer less, for its embedding (false)"),
    "megatron.loss_counts": Setting("flag", "whether the last stage has a layer less, for head and loss (false)"),
    "ddp.gradient_as_bucket_view": Setting("flag", "whether gradients become views of DDP's buckets (false)"),
    "zero.reduce_bucket_size": Setting("elements", "ZeRO's gradient bucket (5e8; hidden² under the Trainer)", 1),
    "zero.prefetch_bucket_size": Setting("elements", "ZeRO-3's prefetched parameters (5e7)"),
    "zero.param_persistence_threshold": Setting("elements", "ZeRO-3 keeps smaller parameters whole (1e5)"),
    "zero.max_live_parameters": Setting("elements", "ZeRO-3's bound on gathered parameters (1e9)"),
    "zero.max_reuse_distance": Setting("elements", "ZeRO-3 keeps what is needed again within this (1e9)"),
    "zero.sub_group_size": Setting("elements", "ZeRO-3's optimizer sub-groups (1e9); 0: each parameter its own", 0),
    "zero.overlap_comm": Setting("flag", "whether ZeRO reduces beside backward, with a second bucket"),
    "zero.pin_memory": Setting("flag", "whether offloaded state is pinned host memory (true)"),
    "zero.nvme_path": Setting("path", "folder on each node for the swap files of --offload nvme (./nvme)"),
    "zero.offload_param": Setting(
        "choice",
        "where --offload nvme keeps the weights: in files, in RAM, or on the device; the optimizer's state is in files"
        " (nvme)",
        choices=("nvme", "cpu", "none"),
    ),
    "zero.max_in_cpu": Setting("elements", "how many of a rank's weights on NVMe stay in RAM (1e9)"),
    "zero.param_buffer_count": Setting("count", "buffers for weights on NVMe (5, or as many as the run needs)", 1),
    "zero.param_buffer_size": Setting("elements", "size of each (1e8, or the largest partition)", 1),
    "zero.optimizer_buffer_count": Setting("count", "buffers for optimizer state on NVMe (4, the least for Adam)", 4),
    "clip.max_norm": Setting(
        "norm", "norm to which the run clips its gradients, 0: not at all (as the script does; nothing is imposed)"
    ),
    "checkpoint.every": Setting("count", "checkpoint every N-th layer (1)", 1),
    "checkpoint.reentrant": Setting(
        "flag", "whether checkpoints are torch's reentrant ones, which hold one layer's output more in backward (false)"
    ),
    "checkpoint.offload": Setting(
        "flag", "whether the inputs of checkpointed layers wait in pinned host memory, as Accelerate has it (false)"
    ),
    "kernels.liger": Setting(
        "flag", "whether Liger's norms, gated products, rotation and loss replace the model's own (false)"
    ),
    "recipe.logits": Setting(
        "choice",
        "how --recipe grpo takes log-probabilities: by tiles, as TRL does, or of the completions' whole logits, as"
        " ms-swift does (tiles)",
        choices=("tiles", "whole"),
    ),
    "fp8.backend": Setting(
        "choice",
        "whose float8 layers accelerate uses under fp8-mixed: torchao, or te for Transformer Engine (torchao)",
        choices=("torchao", "te"),
    ),
    "fp8.all_gather": Setting("flag", "whether FSDP2 and HSDP gather torchao's float8 weights as float8 (true)"),
    "compile.backend": Setting(
        "choice",
        "compiler with which Accelerate calls torch.compile; --compile means inductor; eager is counted as the step is"
        " written (none)",
        choices=("inductor", "aot_eager", "eager"),
    ),
    "compile.mode": Setting(
        "choice",
        "mode of inductor (default)",
        choices=("default", "reduce-overhead", "max-autotune"),
    ),
    "compile.regional": Setting("flag", "whether repeated blocks are compiled once each, not the whole model (false)"),
    "lora.dropout": Setting("rate", "dropout before the adapters (0)"),
    "lora.beside": Setting("count", "adapters of the same rank beside the trained one that are frozen (0)", 0),
    "quant.base": Setting(
        "scheme",
        "how the frozen base of adapters is stored: under qlora nf4, fp4 or int8, under lora gptq-... or awq-... (nf4"
        " under qlora; under lora as the config says)",
    ),
    "quant.experts": Setting(
        "flag",
        "whether QLoRA packs experts that are one parameter too, as axolotl's quantize_moe_experts and Unsloth do (as"
        " the stack does)",
    ),
    "quant.upcast": Setting(
        "choice",
        "which unpacked weights of a quantised base are kept in fp32 on devices that hold the whole model (as the stack"
        " does)",
        choices=("all", "norms", "none"),
    ),
    "quant.storage": Setting(
        "choice",
        "bnb_4bit_quant_storage of QLoRA under FSDP2: packed weights are sharded as floats, whole on every rank as"
        " uint8 (the type of the computation)",
        choices=("uint8", "bfloat16", "float16"),
    ),
    "quant.double": Setting("flag", "whether QLoRA quantises its scales as well (false)"),
    "data.split_batches": Setting("flag", "whether a DataLoader's batch is that of all ranks, to be split (false)"),
    "data.dispatch_batches": Setting("flag", "whether rank 0 alone reads and sends each rank its batch (false)"),
    "data.even_batches": Setting("flag", "whether samples are repeated so that every rank gets as many (true)"),
    "data.seedable_sampler": Setting("flag", "whether shuffling has a seed of its own, equal on all ranks (false)"),
    "loss.variant": Setting(
        "choice",
        "whose loss causal language models compute: transformers-4.48 shifts the fp32 logits (4.46 to 4.48),"
        " transformers-4.45 also upcasts them in forward; or a stack's, chunk by chunk; or the log-probabilities of"
        " verl's or OpenRLHF's actor; or the Trainer's smoothed one (installed, or the stack's)",
        choices=LOSSES,
    ),
    "data.padding": Setting(
        "padding", "none, longest (samples of a micro batch differ in length), or the share of every sample (none)"
    ),
    "eval.batch": Setting(
        "count", "samples of a rank's forward pass when the job evaluates between steps (it does not)", 1
    ),
    "eval.keep_logits": Setting(
        "flag", "whether logits are gathered and kept, as the Trainer does for compute_metrics (false)"
    ),
    "eval.samples": Setting(
        "count", "samples of one evaluation, of all ranks: how many logits are kept, how long eval.every's take", 1
    ),
    "eval.every": Setting("count", "steps from one evaluation to the next, for the hours of --tokens or --epochs", 1),
    "eval.accumulation_steps": Setting(
        "count", "batches after which kept logits go to the host (the Trainer's eval_accumulation_steps; none)", 1
    ),
    "cache.implementation": Setting(
        "choice",
        "inference: which cache of transformers keeps keys and values (dynamic)",
        choices=("dynamic", "static"),
    ),
    "prefill.chunk": Setting(
        "count", "inference: tokens of a prompt that generate takes at once, its prefill_chunk_size (all of them)", 64
    ),
    "memory.reserve": Setting("size", "memory of each device to keep free for others, such as 2GiB (0)"),
    "gpu.power_limit": Setting(
        "count", "watts that each device may take, as nvidia-smi -pl sets it (its own limit)", 1
    ),
    "gpu.network": Setting(
        "choice",
        "what joins nodes, for the speed alone: how much of their links NCCL fills (the cloud's own, else infiniband)",
        choices=NETWORKS,
    ),
    "attention.kernel": Setting(
        "choice",
        "generation of the fused attention kernels, for the speed alone: flash is FlashAttention-2 (as torch and"
        " flash-attn choose)",
        choices=("flash", "cudnn", "flash1", "flash3"),
    ),
    "alloc.expandable_segments": Setting("flag", "whether segments of CUDA's allocator grow (false)"),
    "alloc.max_split_size_mb": Setting("mib", "MiB from which on cached blocks are not split (no limit)", 20),
    "alloc.roundup_power2_divisions": Setting("power", "steps to which requests inside a power of two round up (0)"),
    "alloc.garbage_collection_threshold": Setting("rate", "share of the allowed memory above which cache is freed (0)"),
}

LATER = ("dtype.grads", "dtype.optimizer")
"""Keys of the interface that later versions bring; refused by name."""


def parse_settings(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """`KEY=VALUE` pairs, sorted; UsageError for unknown keys or values, the nearest key offered."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--set {word!r}: write KEY=VALUE, such as fsdp.reshard_after_forward=false")
        if key in LATER:
            raise NotBuiltError(f"--set {key}")
        setting = SETTINGS.get(key)
        if setting is None:
            hint = did_you_mean(key, (*SETTINGS, *LATER), limit=1)
            raise UsageError(f"--set {key}: unknown setting.{hint} Known: {', '.join(SETTINGS)}")
        if key in found:
            raise UsageError(f"--set {key} is given twice: keep one")
        value = value.strip()
        found[key] = _path(key, value) if setting.kind == "path" else _checked(key, setting, value.lower())
    return tuple(sorted(found.items()))


def _checked(key: str, setting: Setting, value: str) -> str:
    """The value as it is kept: lower case, numbers in digits, sizes in bytes."""
    if setting.kind in ("flag", "choice"):
        choices = setting.choices or ("true", "false")
        if value not in choices:
            raise UsageError(f"--set {key}={value}: use {' or '.join(choices)}")
        return value
    if setting.kind == "choices":
        return _some(key, setting, value)
    if setting.kind == "rate":
        return _rate(key, value)
    if setting.kind == "norm":
        return _norm(key, value)
    if setting.kind == "padding":
        return _padding(key, value)
    if setting.kind == "scheme":
        return trainable_base(value)
    if setting.kind == "size":
        return _size(key, value)
    return str(_whole(key, setting, value))


def _some(key: str, setting: Setting, value: str) -> str:
    """Some of the choices, each once, in alphabetical order."""
    found = sorted({word.strip() for word in value.split(",")})
    unknown = next((word for word in found if word not in setting.choices), None)
    if unknown is not None:
        raise UsageError(f"--set {key}={value}: {unknown!r} is none of {', '.join(setting.choices)}")
    return ",".join(found)


_WANTED = {
    "elements": "a whole number of elements, such as 5e8",
    "count": "a whole number of at least {least}",
    "mib": "whole MiB from 20 on, such as 128",
    "power": "0 or a power of two, such as 4",
}


def _whole(key: str, setting: Setting, value: str) -> int:
    try:
        number = float(value) if len(value) < 32 else -1.0
    except ValueError:
        number = -1.0
    whole = setting.least <= number < _LARGEST and number == int(number)
    if not whole or (setting.kind == "power" and int(number) & (int(number) - 1)):
        raise UsageError(f"--set {key}={value}: use {_WANTED[setting.kind].format(least=setting.least)}")
    return int(number)


def _rate(key: str, value: str) -> str:
    try:
        rate = float(value)
    except ValueError:
        rate = -1.0
    if not 0.0 <= rate < 1.0:
        raise UsageError(f"--set {key}={value}: use a rate of at least 0 and below 1, such as 0.05")
    return str(rate)


def _norm(key: str, value: str) -> str:
    try:
        norm = float(value)
    except ValueError:
        norm = -1.0
    if not (norm >= 0.0 and math.isfinite(norm)):
        raise UsageError(f"--set {key}={value}: use a norm above 0, such as 1.0, or 0 for no clipping")
    return str(norm)


def _padding(key: str, value: str) -> str:
    if value in ("none", "longest"):
        return value
    try:
        rate = float(value)
    except ValueError:
        rate = -1.0
    if not 0.0 <= rate < 1.0:
        raise UsageError(f"--set {key}={value}: use none, longest, or a share of at least 0 and below 1, such as 0.25")
    return str(rate) if rate else "none"


def _path(key: str, value: str) -> str:
    if not value or any(ord(letter) < 32 for letter in value):
        raise UsageError(f"--set {key}={value!r}: name a folder")
    return value


def _size(key: str, value: str) -> str:
    try:
        return str(int(parse_bytes(value)))
    except InputError:
        raise UsageError(f"--set {key}={value}: use a size such as 2GiB or 512MiB") from None


def settings_table() -> str:
    """Every key with its meaning, as a Markdown table."""
    rows = [f"| `{key}` | {setting.meaning} |" for key, setting in SETTINGS.items()]
    return "\n".join(["| key | meaning, and its value where not set |", "|---|---|", *rows])
