"""How a row of transformers' Trainer ran, by rule from its own fields.

What versions of transformers did otherwise is declared here, each from its source; nothing is fitted to a row.
"""

import json
import re
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from benchmarks.accuracy.memory.rules import check_lengths, checkpoints, strategy_of
from benchmarks.accuracy.row import Row, SetAside, field, is_true, needed, number, software_group, text
from benchmarks.accuracy.software import nccl_of, transformers_of
from benchmarks.accuracy.trainer.told import check_states, check_told, optimizer_as_written, planned_as
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.workload.optimizers.registry import Optimizer
from gpu_plan.planner.workload.training import MOST_TOKENS, Attention, Peft, Precision

INSTALLED = "installed"
_SCRIPT = "fms-acceleration"
"""The one project whose script and kernels are known beside transformers' own."""
_MOST_RANK = 4096
_OLDEST = (4, 38)
"""Models before it hold tables of all positions in every layer (modeling_llama.py: LlamaRotaryEmbedding.cos_cached)."""
_TYPES = {"bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16", "fp32": "float32",
          "float32": "float32"}  # fmt: skip
_QUANTISED = "nf4/int4 base"
_ATTENTION = {"sdpa": Attention.SDPA, "flash": Attention.FLASH, "fa2": Attention.FLASH, "eager": Attention.EAGER}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a row ran, as far as memory goes; rows that differ in the micro batch alone share one."""

    model: str
    config: str
    """The model's config as JSON."""
    seq_len: int
    checkpointing: bool
    strategy: str
    cluster: str
    """As `--gpus` takes it."""
    weights: str
    """dtype in which the model was loaded."""
    autocast: str | None
    """dtype of the Trainer's mixed precision; None without a flag."""
    upcasts_rest: bool
    """Whether what is not quantised was made fp32 (peft utils/other.py: prepare_model_for_kbit_training)."""
    attention: Attention
    optimizer: str
    transformers: tuple[int, int]
    nccl_version: tuple[int, int]
    loss: str
    """`shifted` (transformers up to 4.48), `in-place` (one Triton kernel), `fused-linear` (no logits), `installed`."""
    fused_kernels: bool
    """fms-acceleration's norms, rotation and, around a quantised base, adapters."""
    added_tokens: int
    """By how many rows the script widened both embeddings."""
    lora: tuple[int, tuple[str, ...], float] | None
    """Rank, targets and dropout of the adapters."""
    quantised: bool

    @property
    def precision(self) -> Precision:
        """Under FSDP accelerate upcasts what a flag makes mixed; one process keeps the weights as they were loaded."""
        mixed = self.autocast is not None and (self.strategy != "single" or self.weights == "float32")
        if mixed:
            return Precision("bf16-mixed" if self.autocast == "bfloat16" else "fp16-mixed")
        return Precision("fp32" if self.weights == "float32" else "bf16")

    @property
    def peft(self) -> Peft:
        if self.lora is None:
            return Peft("none")
        return Peft("qlora") if self.quantised else Peft("lora")

    @property
    def fuses_adapters(self) -> bool:
        """Around a quantised base the plugin's kernels take in the adapters as well."""
        return self.fused_kernels and self.quantised

    @property
    def repeats_keys(self) -> bool:
        """Whether keys and values are repeated for every query head: Mistral before 4.48; Llama's flash attention never
        did (modeling_llama.py: LlamaFlashAttention2)."""
        return self.transformers < (4, 48) and self.model_type == "mistral"

    @property
    def layer_frequencies(self) -> bool:
        """Whether every attention holds rotary frequencies of its own."""
        return self.transformers < (4, 48)

    @property
    def fp32_logits(self) -> bool:
        """Whether the model itself puts out fp32 logits."""
        return self.transformers < (4, 46) and self.loss != "fused-linear"

    @property
    def reentrant(self) -> bool:
        """transformers before 5.0 checkpoints reentrantly unless told otherwise (modeling_utils.py:
        gradient_checkpointing_enable)."""
        return self.transformers < (5, 0)

    @property
    def checkpoints_outside(self) -> bool:
        """Whether checkpoint is called around the layer, which under FSDP is the wrapped one: before 4.52
        (models/llama/modeling_llama.py: _gradient_checkpointing_func)."""
        return self.checkpointing and self.transformers < (4, 52)

    @property
    def model_type(self) -> str:
        return str(json.loads(self.config).get("model_type"))

    @property
    def kernels(self) -> str:
        """What the run had in place of transformers' own."""
        words = ["fused norms and rotary"] if self.fused_kernels else []
        if self.fuses_adapters:
            words.append("fused adapters")
        return ", ".join([*words, self.loss])


def setup_of(row: Row, source: ModelSource, cluster: Cluster) -> Setup:
    """SetAside when the row leaves open what memory depends on."""
    check_lengths(row)
    check_told(row, cluster)
    if is_true(row, "compile"):
        raise SetAside("compiled by a torch of its time")
    version, config = transformers_of(row), source.config or {}
    _check_version(version)
    if version < (5, 0) and any("expert" in name for name in config):
        raise SetAside("experts, which transformers ran one by one before 5.0")
    ours = software_group(row) == _SCRIPT
    loss, fused = _loss(row, version, ours=ours)
    quantised = _quantised(row)
    weights, autocast = _types(row, quantised=quantised)
    strategy, optimizer, lora = strategy_of(row), _optimizer(row), _lora(row, quantised=quantised)
    setup = Setup(
        model=source.id,
        config=json.dumps(config, sort_keys=True),
        seq_len=needed(row, "seq_len", "sequence length", MOST_TOKENS),
        checkpointing=checkpoints(row),
        strategy=strategy,
        cluster=cluster.spec,
        weights=weights,
        autocast=autocast,
        upcasts_rest=quantised and "prepare_model_for_kbit_training" in text(row, "notes"),
        attention=_attention(row),
        optimizer=optimizer,
        transformers=version,
        nccl_version=nccl_of(row),
        loss=loss,
        fused_kernels=fused,
        added_tokens=_added_tokens(source.id) if ours else 0,
        lora=lora,
        quantised=quantised,
    )
    if lora is None and not strategy.startswith("zero") and "8bit" not in optimizer:
        check_states(row, kept="bfloat16" if setup.precision == Precision("bf16") else "float32")
    return setup


def _check_version(version: tuple[int, int]) -> None:
    if version < _OLDEST:
        raise SetAside(f"transformers {version[0]}.{version[1]}: its rotary tables and masks are not mirrored")
    if version[0] > int(metadata.version("transformers").split(".")[0]):
        raise SetAside(f"transformers {version[0]}.{version[1]}, newer than what is traced here")


def _added_tokens(model: str) -> int:
    """Special tokens that fms-acceleration's script found missing (fms-hf-tuning tuning/sft_trainer.py: train, and
    utils/tokenizer_data_utils.py: tokenizer_and_embedding_resize): padding for Mistral's tokenizer, padding and the
    unknown token for Llama 3's."""
    return 2 if "llama-3" in model.lower() else 1


def _quantised(row: Row) -> bool:
    kind = text(row, "quantization")
    if not kind:
        return False
    if not kind.lower().startswith(("bnb-nf4", "bnb.nf4", "nf4")):
        if "gptq" in kind.lower():
            raise SetAside(f"{kind} base, whose packed weights a plugin of its own turns into sharded parameters")
        raise SetAside(f"{kind} base, whose packed weights are not mirrored")
    if kind.lower() not in ("bnb-nf4", "bnb.nf4", "nf4"):
        raise SetAside(f"{kind} base: what is said beside nf4 is not mirrored")
    return True


def _types(row: Row, *, quantised: bool) -> tuple[str, str | None]:
    """dtype of the weights and of autocast.

    Rows spell what a flag asked for short (`bf16`) and what the model was loaded in long (`bfloat16`), unless their
    `basis` says it.
    """
    compute, basis = text(row, "dtype.compute").split(" ")[0], text(row, "dtype.basis").lower()
    kind = _TYPES.get(compute.lower())
    if kind is None:
        raise SetAside(f"computes in {compute}" if compute else "type of the computation not stated")
    flag = "no bf16/fp16 flag" not in basis and ("autocast" in basis or len(compute) == len("bf16"))
    params = text(row, "dtype.params")
    weights = kind if quantised or params == _QUANTISED else _TYPES.get(params.lower())
    if weights is None:
        raise SetAside(f"weights in {params}" if params else "type of the weights not stated")
    if kind == "float32":
        return weights, None
    if weights == "float16" or kind == "float16":
        raise SetAside("fp16: its loss scaler and weights are not mirrored")
    return weights, kind if flag or weights == "float32" else None


def _attention(row: Row) -> Attention:
    said = text(row, "attention").lower()
    found = next((kind for word, kind in _ATTENTION.items() if word in said), None)
    if found is None:
        raise SetAside(f"attention {said or 'not stated'}")
    return found


def _optimizer(row: Row) -> str:
    """By what `optim` calls it; the Trainer's own where the row says AdamW and no more."""
    said = text(row, "optimizer").lower()
    name = planned_as(optimizer_as_written(said.removeprefix("torch.optim.")))
    if name is None:
        raise SetAside(f"optimizer {said or 'not stated'}")
    return str(Optimizer(name))


def _loss(row: Row, version: tuple[int, int], *, ours: bool) -> tuple[str, bool]:
    """The loss, and whether fms-acceleration's kernels are there."""
    fused = ours and "foak" in text(row, "notes")
    said = text(row, "fused_or_chunked_loss").lower()
    if "liger" in said:
        if not ours:
            raise SetAside("Liger's kernels of its time are not mirrored")
        return "fused-linear", fused
    if said.startswith("triton") or "chunked" in said:
        if not fused:
            raise SetAside(f"{said.split(' (')[0]} is not mirrored")
        return "in-place", fused
    return ("in-place" if fused else "shifted" if version < (4, 49) else INSTALLED), fused


def _lora(row: Row, *, quantised: bool) -> tuple[int, tuple[str, ...], float] | None:
    task, given = text(row, "task"), field(row, "lora")
    if given is None:
        if quantised or task in ("lora", "qlora"):
            raise SetAside("adapters not stated")
        if task.startswith("peft"):
            raise SetAside(f"{task.removeprefix('peft:')} adapters are not in this program")
        return None
    targets: Any = field(row, "lora.targets") or field(row, "lora.target_modules")
    if isinstance(targets, str) and re.fullmatch(r"all[-_ ]linear([- ](layers|modules|projections))?", targets.lower()):
        targets = ["all-linear"]  # peft tuners/tuners_utils.py: _maybe_include_all_linear_layers
    if not isinstance(targets, list) or not targets or not all(isinstance(name, str) and name for name in targets):
        raise SetAside("adapted modules not stated")
    dropout = number(row, "lora.dropout") or number(row, "lora.lora_dropout") or 0.0
    if dropout >= 1:
        raise SetAside("dropout of the adapters makes no sense")
    rank = "lora.rank" if field(row, "lora.rank") is not None else "lora.r"
    return needed(row, rank, "rank of the adapters", _MOST_RANK), tuple(targets), dropout
