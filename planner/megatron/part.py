"""What one rank of a Megatron-core job traces: a stage of a model under a layout."""

from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.pipeline.stages import StageCut
from gpu_plan.planner.plain.values import dataclass

GATHERED = "gather_buffer"
"""Megatron-core's buffer in which the head's input is gathered, as a trace names it: made once, never freed."""

DUMMY = "dummy_gradient"
"""Begins the names of what Transformer Engine gives in place of gradients that products add to their buffers: one for
each shape, made once (pytorch/module/base.py: get_dummy_wgrad)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One stage on one rank."""

    model: Architecture
    layout: Layout
    cut: StageCut

    def key(self) -> str:
        """Stable text that names it in caches."""
        return f"{self.model.key()} {self.layout.own().key()} {self.cut.key()}"

    @property
    def kinds(self) -> tuple[bool, bool, tuple[bool, ...]]:
        """What tells stages of one model apart: whether it is first or last, and which of its layers have experts."""
        experts = self.model.experts
        layers = tuple(experts is not None and experts.has(layer) for layer in range(self.cut.first, self.cut.end))
        return self.cut.is_first, self.cut.is_last, layers

    @property
    def group(self) -> int:
        """Ranks that a rank's own step sends something to, itself among them."""
        layout = self.layout
        return max(layout.tensor * layout.context, layout.expert * layout.expert_tensor)
