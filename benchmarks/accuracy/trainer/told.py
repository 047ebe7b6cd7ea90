"""What a Trainer's row says beyond what its step is made again with: set aside in words, never judged by a default."""

import re

from benchmarks.accuracy.row import Row, SetAside, text
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.workload.optimizers.registry import by_word

_OWN_STEPS = (
    ("unsloth", "unsloth's own kernels, checkpoints and loss"),
    ("colossalai", "ColossalAI's own step"),
    ("megatron", "Megatron-LM's own step"),
    ("nemo", "NeMo's own step"),
    ("lightning", "Lightning's own loop"),
    ("mosaicml", "Composer's own loop"),
    ("composer", "Composer's own loop"),
    ("torchtune", "torchtune's own models and adapters"),
    ("openrlhf", "OpenRLHF's own loop"),
    ("verl", "verl's own loop"),
    ("lmflow", "LMFlow's own loop"),
    ("ms-swift", "ms-swift's own loss"),
    ("axolotl", "axolotl's own patches of its time"),
    ("llama[- ]?factory", "LLaMA-Factory's own patches of its time"),
    ("torch[-_]xla", "XLA, whose memory is not that of torch's allocator"),
    ("habana", "Habana's own kernels"),
    ("optimum-(neuron|tpu|intel)", "another device's own kernels"),
)
"""Words of software, group or source: transformers beside them does not make the step the Trainer's own."""
_HEADS = re.compile(
    r"\bmtp\b|multi[- ]token"
    r"|classif|regress|embed|retriev|rerank|detect|segment|\basr\b|speech|vision|image|video|caption|diffusion"
    r"|question[- ]answering|\bqa\b|\bner\b|\bmlm\b|masked|span corruption|\bvqa\b"
)
"""Tasks whose head, loss or inputs are not those of the class that a text model's config names."""
_ADAPTERS = re.compile(
    r"dora|vera\b|\bia3\b|\boft|boft|lokr|loha|adalora|(prompt|prefix|p|ln)[-_ ]tuning|tinylora|fourier|randlora"
    r"|\bbone\b|\bmiss\b|shira|\bhira\b|\broad\b|\bc3a\b|vblora|xlora|galore|badam|\blisa\b"
)
_LOSSES = re.compile(r"^(none|no|off|false)\b|^triton|^liger|chunked")
_KERNELS = re.compile(r"\bmath\b|efficient|cudnn|softcap|flash_attention_3|\bfa3\b|flash[- ]?attention[- ]?3")
_UNEVEN = re.compile(r"\b(average|mean|median|max|maximum|up to|longest|bucket\w*|dynamic\w*|padding-free|range)\b")
_ELSE = (
    (r"label[- _]smooth", "label smoothing"),
    (r"(frozen|freez\w+) (the )?(embed|layer|encoder|vision|backbone|lm_head)", "weights that are frozen"),
    (r"\b(embeddings?|layers|encoder|backbone|lm_head)( (is|are|stay|kept))? frozen", "weights that are frozen"),
    (r"\btrain(s|ing|ed)? (only )?(the )?(lm_head|head|norms|embeddings|bias(es)?) only", "weights that are frozen"),
    (r"\b(activations?|gradients?|optimizer( states?)?|weights|parameters) (are |is )?offload(ed|ing)?\b", "offload"),
    (r"\bfreeze[_ ](vision|embed|layer|encoder|backbone|lm_head)\w*", "weights that are frozen"),
    (r"(gradient[- ]release|optimizer[- ](step )?in[- ]backward|fused into (the )?backward)", "steps within backward"),
    (r"(gradients )?accumulat\w+ in (fp32|float32)", "gradients in fp32"),
    (r"\b(galore|apollo|badam|lisa sampling|relora)\b", "gradients or weights that are projected or sampled"),
    (r"\b(torch\.compile|compiled by inductor)", "a step that is compiled"),
    (r"\bcuda graphs?\b", "CUDA graphs, which keep pools of their own"),
    (
        r"\b(transformer[- ]?engine|float8|fp8)( \w+)? (training|layers|linear|recipe|gemm)|\btransformerengine fp8",
        "float8",
    ),
    (r"\b(padding-free|batch flattening|dynamic padding|group_by_length|grouped by length)\b", "lengths that vary"),
    (r"\b(reference|reward|teacher) model\b|\b(dpo|orpo|kto|grpo|ppo) (with|loss|training)\b", "more than one model"),
    (r"(moving average|\bema\b) (copy|of (the )?(weights|parameters))", "a moving average of its weights"),
)
"""What notes say of a step, in words."""
_OLDEST_FLASH = (8, 0)
"""FlashAttention 2 refuses older GPUs (Dao-AILab/flash-attention csrc/flash_attn/flash_api.cpp: mha_fwd)."""


def check_told(row: Row, cluster: Cluster) -> None:
    """SetAside where the row names a step, a head, adapters, a loss or kernels other than those made again here."""
    ran, task = " ".join(text(row, name) for name in ("software", "group", "source")).lower(), text(row, "task").lower()
    for word, reason in _OWN_STEPS:
        if re.search(rf"\b{word}\b", ran):
            raise SetAside(f"{reason}: not mirrored")
    if _HEADS.search(task):
        raise SetAside(f"task {task}: its head and loss are not mirrored")
    if _ADAPTERS.search(task):
        raise SetAside(f"{task.removeprefix('peft:')} adapters are not in this program")
    loss = text(row, "fused_or_chunked_loss").lower()
    if loss and not _LOSSES.search(loss):
        raise SetAside(f"loss {loss} is not mirrored")
    kind = text(row, "seq_len_kind").lower()
    if _UNEVEN.search(kind):
        raise SetAside(f"lengths vary: {kind.split(';')[0]}")
    _check_attention(row, cluster)
    notes = text(row, "notes").lower()
    for pattern, words in _ELSE:
        found = re.search(pattern, notes)
        if found and not re.search(rf"\b(no|without|not|w/o)\W+(\w+\W+)?{re.escape(found[0])}", notes):
            raise SetAside(f"{words}: not mirrored")


def _check_attention(row: Row, cluster: Cluster) -> None:
    attention, gpu = text(row, "attention").lower(), cluster.gpu
    if _KERNELS.search(attention):
        raise SetAside(f"attention {attention}")
    if gpu.vendor not in ("nvidia", "amd"):
        raise SetAside(f"{gpu.short}: its memory is not that of torch's allocator for CUDA")
    old = gpu.compute_capability is not None and gpu.compute_capability < _OLDEST_FLASH
    if "flash" in attention and old:
        raise SetAside(f"attention {attention}, which a {gpu.short} does not run")


_TYPES = {"bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16", "fp32": "float32",
          "float32": "float32", "fp8": "fp8", "float8": "fp8", "int8": "int8", "cpu": "the host's memory"}  # fmt: skip


def check_states(row: Row, *, kept: str) -> None:
    """SetAside where gradients or states of a full training are stated in another type than they are counted in.

    `kept` is the type of the weights that the optimizer steps.
    """
    for called, path in (("gradients", "dtype.grads"), ("optimizer states", "dtype.optimizer_states")):
        told = {_TYPES[word] for word in re.findall(r"[a-z]+\d*", text(row, path).lower()) if word in _TYPES}
        if told - {kept}:
            raise SetAside(f"{called} in {' and '.join(sorted(told - {kept}))} beside weights in {kept}")


_TORCH = {"adam": "adamw"} | {
    name: name for name in ("adamw", "sgd", "adafactor", "nadam", "radam", "adamax", "adadelta", "rmsprop", "adagrad")
}
"""Names of torch's classes, and how their memory is planned: Adam's is AdamW's."""
_ADAM8 = re.compile(r"^(paged[-_ ])?(adamw[-_ ]?8[-_ ]?bit|8[-_ ]?bit[-_ ](paged[-_ ])?adamw|adamw \(8[- ]?bit\))$")
_QUALIFIED = re.compile(r"\b(4|8)[- _]?bit|fp8|int8|paged|bf16|bfloat16|fp16|float16|float32|fp32|stochastic|kahan"
                        r"|master|offload|cpu|layer-?wise|schedule|\bema\b|\+")  # fmt: skip


def optimizer_as_written(said: str) -> str:
    """`optimizer` in lower case by the name that is meant where a source does not write it as `optim` does.

    SetAside where it says more of the states than their names do.
    """
    if _ADAM8.match(said):
        return "paged_adamw_8bit" if "paged" in said else "adamw_bnb_8bit"
    word, _, rest = said.partition(" ")
    word = word.rstrip(",;")
    if _QUALIFIED.search(rest):
        raise SetAside(f"optimizer {said}: what its name does not tell is not mirrored")
    if word == "adamw" and re.search(r"(?<!non-)(?<!not )\bfused\b", rest):
        return "adamw_torch_fused"
    if word == "adamw" and re.search(r"foreach\W*(false|off|no)\b|for-?loop|single[- ]tensor", rest):
        return "adamw-forloop"
    if word == "adamw" and re.search(r"\bamsgrad\b(?!\W*(false|off|no)\b)", rest):
        return "adamw-amsgrad"
    if word == "sgd" and re.search(r"(?<!without )(?<!no )\bmomentum\b(?!\W*(0(\.0)?\b(?!\.)|none|off))", rest):
        return "sgd-momentum"
    return word


def planned_as(word: str) -> str | None:
    """The name that the plan has for a word of `optimizer_as_written`; None where it has none."""
    known = by_word(word)
    if known is not None:
        return known.name
    return word if word in ("adamw-forloop", "adamw-amsgrad", "sgd-momentum") else _TORCH.get(word)
