"""A job as arguments of Megatron-LM's pretrain_gpt.py (megatron/training/arguments.py at d98e8a64dd).

Only what the plan says: learning rate, data, tokens and checkpoints are the user's own.
"""

import shlex
from collections.abc import Mapping

from gpu_plan.planner.megatron.architecture import Architecture, LatentAttention
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.megatron.settings import flag, number
from gpu_plan.planner.plain.values import dataclass

Words = tuple[str, ...]
_BACKENDS = {"fused": "fused", "flash": "flash", "unfused": "unfused", "local": "local"}
_TYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float8": "fp8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What stands around the model and its layout."""

    name: str
    """The model's, of which the tokenizer is taken."""
    seq_len: int
    micro_batch: int
    global_batch: int
    half: str
    """`bfloat16` or `float16`."""
    settings: Mapping[str, str]
    nodes: int
    per_node: int
    clips_to: float | None = None


def words_of(model: Architecture, layout: Layout, run: Run) -> Words:
    """Flags and their values, one after the other."""
    return (*_of_model(model, run.seq_len), *_of_layout(model, layout), *_of_run(layout, run))


def command_of(model: Architecture, layout: Layout, run: Run) -> str:
    """The shell command of one node, quoted."""
    start = ["torchrun", "--nproc-per-node", str(run.per_node)]
    if run.nodes > 1:
        start += ["--nnodes", str(run.nodes), "--node-rank", "$NODE_RANK"]
        start += ["--master-addr", "$HEAD_NODE", "--master-port", "29500"]
    words = [*start, "pretrain_gpt.py", *words_of(model, layout, run)]
    # arguments.py: validate_args asks for it where tensor or context parallel ranks overlap with what they send.
    before = "CUDA_DEVICE_MAX_CONNECTIONS=1 " if layout.tensor > 1 or layout.context > 1 else ""
    return before + " ".join(word if word.startswith("$") else shlex.quote(word) for word in words)


def _of_model(model: Architecture, seq_len: int) -> Words:
    words: list[str] = ["--num-layers", str(model.layers), "--hidden-size", str(model.hidden)]
    words += ["--ffn-hidden-size", str(model.intermediate), "--num-attention-heads", str(model.heads)]
    if model.latent is None:
        words += ["--kv-channels", str(model.head_dim)]
    else:
        words += _latent(model.latent)
    if model.groups != model.heads and model.latent is None:
        words += ["--group-query-attention", "--num-query-groups", str(model.groups)]
    words += ["--max-position-embeddings", str(model.positions or seq_len), "--seq-length", str(seq_len)]
    words += ["--position-embedding-type", "rope" if model.rotary else "learned_absolute"]
    words += ["--normalization", "RMSNorm" if model.norm == "rms" else "LayerNorm"]
    if model.rotary_base is not None:
        words += ["--rotary-base", f"{model.rotary_base:g}" if model.rotary_base % 1 else str(int(model.rotary_base))]
    words += ["--rotary-percent", f"{model.rotary_share:g}"] if model.rotary_share != 1.0 else []
    if model.rotary_factor is not None:
        words += ["--use-rope-scaling", "--rope-scaling-factor", str(model.rotary_factor)]
    if model.norm_epsilon is not None:
        words += ["--norm-epsilon", str(model.norm_epsilon)]
    switches = {
        "--swiglu": model.gated,
        "--disable-bias-linear": not model.biases,
        "--add-qkv-bias": model.query_biases and not model.biases,
        "--qk-layernorm": model.query_norm and model.latent is None,
        "--untie-embeddings-and-output-weights": not model.tied,
    }
    words += [name for name, given in switches.items() if given]
    words += ["--mtp-num-layers", str(model.next_tokens)] if model.next_tokens else []
    return (*words, *_experts(model))


def _latent(latent: LatentAttention) -> list[str]:
    query = [] if latent.query_rank is None else ["--q-lora-rank", str(latent.query_rank)]
    words = ["--multi-latent-attention", "--qk-layernorm", *query, "--kv-lora-rank", str(latent.key_value_rank)]
    words += ["--qk-head-dim", str(latent.head_dim), "--qk-pos-emb-head-dim", str(latent.rotary_dim)]
    words += ["--v-head-dim", str(latent.value_dim)]
    for name, value in latent.stretched:
        words += [f"--{name.replace('_', '-')}", f"{value:g}"]
    return words


def _experts(model: Architecture) -> list[str]:
    experts = model.experts
    if experts is None:
        return []
    words = ["--num-experts", str(experts.count), "--moe-router-topk", str(experts.chosen)]
    words += ["--moe-ffn-hidden-size", str(experts.width), "--moe-router-score-function", experts.score]
    words += ["--moe-router-load-balancing-type", experts.balance]
    if experts.balance_weight:
        words += ["--moe-aux-loss-coeff", f"{experts.balance_weight:g}"]
    if experts.shared_width:
        words += ["--moe-shared-expert-intermediate-size", str(experts.shared_width)]
    if not all(map(experts.has, range(model.layers))):
        words += ["--moe-layer-freq", f"[{','.join(str(int(experts.has(layer))) for layer in range(model.layers))}]"]
    words += ["--moe-router-pre-softmax"] if experts.first_softmax and experts.score == "softmax" else []
    words += ["--moe-router-enable-expert-bias"] if experts.biased else []
    if experts.groups:
        words += ["--moe-router-num-groups", str(experts.groups)]
        words += ["--moe-router-group-topk", str(experts.chosen_groups)]
    if experts.scale is not None:
        words += ["--moe-router-topk-scaling-factor", f"{experts.scale:g}"]
    return words


def _of_layout(model: Architecture, layout: Layout) -> Words:
    words = ["--tensor-model-parallel-size", str(layout.tensor)]
    words += ["--pipeline-model-parallel-size", str(layout.pipeline)]
    words += ["--context-parallel-size", str(layout.context)]
    words += ["--cp-comm-type", layout.context_comm] if layout.context > 1 else []
    if layout.virtual > 1:
        words += ["--num-virtual-stages-per-pipeline-rank", str(layout.virtual)]
    if layout.group is not None:
        words += ["--microbatch-group-size-per-virtual-pipeline-stage", str(layout.group)]
    for flag_, count in (("first", layout.first_layers), ("last", layout.last_layers)):
        if count is not None:
            words += [f"--decoder-{flag_}-pipeline-num-layers", str(count)]
    words += ["--account-for-embedding-in-pipeline-split"] if layout.embedding_counts else []
    words += ["--account-for-loss-in-pipeline-split"] if layout.loss_counts else []
    if model.experts is not None:
        words += ["--expert-model-parallel-size", str(layout.expert)]
        words += ["--expert-tensor-parallel-size", str(layout.expert_tensor)]
        words += ["--moe-token-dispatcher-type", layout.dispatcher]
        words += ["--moe-router-dtype", "fp32"] if layout.wide_router else []
        words += ["--moe-grouped-gemm"] if layout.grouped else []
        words += ["--moe-permute-fusion"] if layout.permute_fusion else []
        if layout.capacity is not None:
            words += ["--moe-expert-capacity-factor", f"{layout.capacity:g}", "--moe-pad-expert-input-to-capacity"]
    words += ["--sequence-parallel"] if layout.sequence else []
    if layout.recompute != "none":
        words += ["--recompute-granularity", layout.recompute]
    if layout.recompute == "selective":
        words += ["--recompute-modules", *layout.recompute_modules]
    if layout.recompute == "full":
        words += ["--recompute-method", layout.recompute_method]
        words += ["--recompute-num-layers", str(layout.recompute_layers)]
    words += ["--transformer-impl", "local" if layout.local else "transformer_engine"]
    words += ["--attention-backend", _BACKENDS[layout.attention]]
    if layout.cross_entropy in ("native", "te"):
        words += ["--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl", layout.cross_entropy]
    if layout.float8 != "none":
        words += ["--fp8-format", "hybrid", "--fp8-recipe", layout.float8]
        words += ["--fp8-param-gather"] if layout.float8_stored else []
    words += [] if layout.fused_gradients else ["--no-gradient-accumulation-fusion"]
    words += [] if layout.fused_activation else ["--no-bias-swiglu-fusion"]
    words += [] if layout.attention_mask else ["--no-create-attention-mask-in-dataloader"]
    words += ["--hidden-dropout", str(layout.hidden_dropout), "--attention-dropout", str(layout.attention_dropout)]
    return tuple(words)


def _of_run(layout: Layout, run: Run) -> Words:
    words = ["--micro-batch-size", str(run.micro_batch), "--global-batch-size", str(run.global_batch)]
    words += ["--bf16" if run.half == "bfloat16" else "--fp16"]
    if flag(run.settings, "distributed_optimizer", True):
        words += ["--use-distributed-optimizer"]
    if flag(run.settings, "overlap", True):
        words += ["--overlap-grad-reduce"]
        words += ["--overlap-param-gather"] if flag(run.settings, "distributed_optimizer", True) else []
    instances = number(run.settings, "optimizer_instances") or 1
    words += ["--num-distributed-optimizer-instances", str(instances)] if instances > 1 else []
    if run.settings.get("megatron.grad_dtype") == "bfloat16":
        words += ["--grad-reduce-in-bf16"]
    if run.settings.get("megatron.grad_dtype") == "float32" and run.half == "float16":
        words += ["--accumulate-allreduce-grads-in-fp32"]
    if flag(run.settings, "precision_aware", False):
        words += ["--use-precision-aware-optimizer"]
        moments = _TYPES[run.settings.get("megatron.moments_dtype", "float32")]
        words += ["--exp-avg-dtype", moments, "--exp-avg-sq-dtype", moments]
    if run.clips_to is not None:
        words += ["--clip-grad", str(run.clips_to)]
    return (*words, "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", run.name)
