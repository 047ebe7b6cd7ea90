"""Quantised weights: which scheme a config or an option means, and what it stores and allocates.

`scheme` and `words` are plain values and import no torch; `apply.quantise` works on a built model on the meta device.
"""

from gpu_plan.planner.model.quantization.scheme import Method, QuantisedFacts, Runtime, Scheme, Target
from gpu_plan.planner.model.quantization.words import parse_quantize

__all__ = ["Method", "QuantisedFacts", "Runtime", "Scheme", "Target", "parse_quantize"]
