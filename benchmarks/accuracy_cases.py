"""Published rows as cases that can be estimated, or the reason why a row cannot.

Built on the declarations of benchmarks/published_rows.py and published_lora.py; nothing here is fitted.
"""

from dataclasses import dataclass
from typing import Any

from benchmarks.fsdp_qlora import QloraCase, qlora_case_of
from benchmarks.lit_cases import LitCase, lit_case_of
from benchmarks.published_lora import fuses_adapters, setup_with_adapters
from benchmarks.published_rows import Row, Setup, setup_of
from benchmarks.titan_cases import TitanCase, titan_case_of
from gpu_plan.planner.workload.training import Peft

_ASIDE = {
    "axolotl": "says neither which statistic it reports nor its configuration",
    "bigscience": "Megatron-DeepSpeed's own models, tensor and pipeline parallelism",
    "colossalai": "ColossalAI's own models and Gemini offload",
    "internevo": "InternEvo's own models; does not say which statistic it reports",
    "megatron-logs": "Megatron-LM's own models and parallelism",
    "ms-swift": "lengths are caps on samples that vary; remote modelling code of 2023, adapters' types not stated",
    "peft": "does not say which statistic it reports, nor rank and targets",
    "peft-metamathqa": "lengths vary and the peak includes evaluation and generation at a batch of 50",
    "primus": "Megatron-LM under Primus; does not say which statistic it reports",
    "qwen-readme": "does not say which statistic it reports",
    "torchtune": "torchtune's own models and adapters, all but one row compiled",
    "hf-docs": "gradients zeroed in place, a CUDA 11 context of 1.3 GiB, transformers 4.27's own AdamW and attention",
    "gptq-for-llama": "inference",
    "litgpt-inference": "inference",
    "llm-d-planner": "inference",
    "qwen-readme-inf": "inference",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row as it ran."""

    setup: Setup
    lora: tuple[tuple[str, Any], ...] | None
    """Rank, targets and dropout of the adapters."""
    cluster: str
    """As `--gpus` takes it."""

    @property
    def strategy(self) -> str:
        return self.setup.strategy

    @property
    def seq_len(self) -> int:
        return self.setup.seq_len

    @property
    def kernels(self) -> str:
        """What the run had in place of transformers' own."""
        words = ["fused norms and rotary"] if self.setup.fused_kernels else []
        if self.fuses_adapters:
            words.append("fused adapters")
        return ", ".join([*words, self.setup.loss])

    @property
    def fuses_adapters(self) -> bool:
        return fuses_adapters(self.setup, self.peft)

    @property
    def peft(self) -> Peft:
        if self.lora is None:
            return Peft("none")
        return Peft("qlora") if dict(self.lora)["quantised"] else Peft("lora")


AnyCase = Case | TitanCase | LitCase | QloraCase


def case_of(row: Row) -> AnyCase | str:
    """How a row ran, or why it is set aside."""
    group = str(row["group"])
    if group in ("torchtitan", "torchao"):
        return titan_case_of(row)
    if group == "litgpt":
        return lit_case_of(row)
    if group == "fsdp_qlora":
        return qlora_case_of(row)
    if group != "fms-acceleration":
        return _ASIDE.get(group, "of a source that no declaration knows")
    if row["confidence"] == "low":
        kind = str(row.get("seq_len_kind") or "unknown length").split(";")[0]
        return f"configuration incomplete: sequences of {kind}"
    if row["quantization"] not in (None, "bnb-nf4"):
        return f"{row['quantization']} base, whose packed weights a plugin of its own turns into sharded parameters"
    if not row["strategy"].startswith(("single", "FSDP1")):
        return f"{row['strategy']} is not modelled"
    cluster = f"{row['gpu']['count']}x{row['gpu']['model']}"
    if row["lora"] is None:
        return Case(setup=setup_of(row), lora=None, cluster=cluster)
    lora = row["lora"]
    words = ("rank", lora["rank"]), ("targets", tuple(lora["targets"])), ("dropout", lora.get("dropout"))
    words = (*words, ("quantised", row["quantization"] is not None))
    return Case(setup=setup_with_adapters(row), lora=words, cluster=cluster)
