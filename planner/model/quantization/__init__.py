"""Quantised weights: which scheme a config or an option means, and what it stores and allocates.

`scheme` and `words` are plain values and import no torch; `apply.quantise` works on a built model on the meta device.

    scheme, words           what a way to quantise is; `--quantize`
    configs, values         `quantization_config`, read as transformers reads it
    compressed, selection   which modules a method means
    splitting               which methods tensor parallel splits, and why not the others
    apply, adapters         quantised layers put into a model; LoRA around them
    layers/, gguf/          the layers themselves; GGUF files

`options`, `trace` and `capture` use these.
"""

from gpu_plan.planner.model.quantization.scheme import Method, QuantisedFacts, Runtime, Scheme, Target
from gpu_plan.planner.model.quantization.words import parse_quantize

__all__ = ["Method", "QuantisedFacts", "Runtime", "Scheme", "Target", "parse_quantize"]
