"""LoRA around quantised layers on the meta device, as peft 0.21 wraps each kind; and the base it is trained on."""

from typing import Any

import torch
from peft.tuners.lora.awq import AwqLoraLinear
from peft.tuners.lora.gptq import GPTQLoraLinear
from peft.tuners.lora.layer import Linear as LoraLinear
from torch import nn

from gpu_plan.planner.model.linear4bit import Linear4bitMeta
from gpu_plan.planner.model.quantization.layers.int8 import Linear8bitMeta
from gpu_plan.planner.model.quantization.layers.packed_int import AwqGemmMeta, PackedLinear


class Lora8bit(LoraLinear):
    """LoRA around an int8 layer: leaves dtypes to autocast when that is on.

    Mirrors peft tuners/lora/bnb.py: Linear8bitLt.forward.
    """

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        result = self._of_base(x, *args, **kwargs)
        for name in self.active_adapters:
            lora_a, lora_b = self.lora_A[name], self.lora_B[name]
            dropout, scaling = self.lora_dropout[name], self.scaling[name]
            converts = not torch.is_autocast_enabled()
            expected = result.dtype
            if converts:
                x = self._cast_input_dtype(x, lora_a.weight.dtype)
            output = lora_b(lora_a(dropout(x))) * scaling
            if converts:
                output = output.to(expected)
            result = result + output
        return result

    def _of_base(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        result: torch.Tensor = self.base_layer(x, *args, **kwargs)
        return result


class Lora4bit(Lora8bit):
    """LoRA around a 4-bit layer: peft tuners/lora/bnb.py: Linear4bit.forward, which copies the base's result first."""

    def _of_base(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return super()._of_base(x, *args, **kwargs).clone()


def wrappings() -> dict[type[nn.Module], type[nn.Module]]:
    """Which of peft's layers goes around which base; the first match counts.

    GPTQ's and AWQ's are peft's own; those for bitsandbytes exist only where that is installed.
    """
    return {
        Linear4bitMeta: Lora4bit,
        Linear8bitMeta: Lora8bit,
        AwqGemmMeta: AwqLoraLinear,
        PackedLinear: GPTQLoraLinear,
    }
