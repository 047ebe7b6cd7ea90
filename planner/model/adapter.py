"""Which adapters a model is trained through, as plain values: nothing here needs torch."""

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.workload.adapters import Peft

BESIDE = ".beside_"
"""In the names of weights of adapters that stand beside the trained one."""
DEFAULT_RANK = 16
"""Rank when none is given (trl trl/trainer/model_config.py: ModelConfig.lora_r); peft's bare LoraConfig has 8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """LoRA matrices around a frozen base model, which QLoRA stores in 4 bits."""

    peft: Peft
    rank: int = DEFAULT_RANK
    targets: tuple[str, ...] = ()
    """Module names as peft's `target_modules` reads them; empty: peft's own choice for the model type."""
    dropout: float = 0.0
    base: str = ""
    """How the frozen base is stored, a word of `--quantize`; empty: NF4 under QLoRA, else as its config says."""
    double_quant: bool = False
    """Whether the block scales are quantised as well (bnb_4bit_use_double_quant)."""
    pack_experts: bool = False
    """Whether experts that are one parameter are packed into 4 bits too, which bitsandbytes' layers leave alone."""
    beside: int = 0
    """Further adapters of the same rank that are never trained, such as a reward model's."""
    compute_dtype: str = "bfloat16"
    """torch dtype to which 4-bit weights are dequantised (bnb_4bit_compute_dtype); LoRA alone has no use for it."""

    def key(self) -> str:
        """Stable text that names the adapter in caches."""
        text = f"{self.peft} rank={self.rank} targets={','.join(self.targets)} dropout={self.dropout}"
        quantised = f" double={self.double_quant} compute={self.compute_dtype}"
        stored = f" base={self.base}" if self.base else ""
        stored += " experts=packed" if self.pack_experts else ""
        stored += f" beside={self.beside}" if self.beside else ""
        return text + stored + (quantised if self.peft.quantises else "")
