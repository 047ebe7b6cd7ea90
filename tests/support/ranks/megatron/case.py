"""One job of Megatron-core that several processes run for real and that the planner replays."""

from dataclasses import asdict, dataclass
from typing import Any

from gpu_plan.planner.megatron.architecture import Architecture, Experts
from gpu_plan.planner.megatron.layout import Layout

ITERATIONS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronCase:
    """What one launch runs."""

    tensor: int = 1
    pipeline: int = 1
    virtual: int = 1
    expert: int = 1
    experts: int = 0
    layers: int = 4
    micro_batches: int = 4
    micro_batch: int = 2
    seq_len: int = 32
    again: tuple[str, ...] = ()
    """Parts of a layer that are run again."""
    shared: int = 0
    """Width of the experts that all tokens go to."""
    deallocates: bool = True
    """Whether what a stage has sent on is emptied."""
    verl: bool = False
    """Whether the last stage's loss is that of verl's actor, without an entropy."""
    values: bool = False
    """Whether the last layer is that of verl's critic."""
    forward_only: bool = False
    """Whether the schedule runs without gradients, as log-probabilities are taken."""
    differs: float = 0.0
    """How far peaks may lie apart, where the cause is known: see `benchmarks/results/megatron_ranks.md`."""

    @property
    def world(self) -> int:
        return max(self.tensor, self.expert) * self.pipeline

    @property
    def model(self) -> Architecture:
        experts = Experts(count=self.experts, chosen=2, width=96, shared_width=self.shared) if self.experts else None
        return Architecture(
            layers=self.layers, hidden=64, intermediate=192, heads=4, groups=4, head_dim=16, vocabulary=256,
            gated=False, norm="layer", positions=self.seq_len, rotary=False, experts=experts,
        )  # fmt: skip

    @property
    def layout(self) -> Layout:
        return Layout(
            tensor=self.tensor, pipeline=self.pipeline, virtual=self.virtual, expert=self.expert, local=True,
            expert_tensor=1, attention="local", fused_gradients=False, fused=False, permute_fusion=False,
            grouped=False, capacity=1.0 if self.experts else None,
            deallocates=self.deallocates,
            cross_entropy="verl-value" if self.values else "verl" if self.verl else "unfused",
            recompute="selective" if self.again else "none", recompute_modules=self.again or ("core_attn",),
        )  # fmt: skip

    def label(self) -> str:
        """Short text that names the case."""
        experts = f", {self.experts} experts" if self.experts else ""
        again = f", {' and '.join(self.again)} again" if self.again else ""
        kept = "" if self.deallocates else ", outputs kept"
        return (
            (self.layout.words or "one rank")
            + experts
            + again
            + kept
            + (", verl's loss" if self.verl else "")
            + (", values" if self.values else "")
            + (", forward only" if self.forward_only else "")
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return asdict(self)


CASES = (
    MegatronCase(),
    MegatronCase(pipeline=2),
    MegatronCase(tensor=2),
    MegatronCase(pipeline=2, virtual=2),
    MegatronCase(expert=2, experts=4, differs=0.0002),
    MegatronCase(pipeline=4, micro_batches=8),
    MegatronCase(pipeline=4, virtual=2, layers=8, micro_batches=8),
    MegatronCase(tensor=2, pipeline=2),
    MegatronCase(tensor=2, pipeline=2, virtual=2),
    *(MegatronCase(again=(part,)) for part in ("core_attn", "layernorm", "mlp")),
    MegatronCase(again=("core_attn", "layernorm", "mlp"), pipeline=2),
    MegatronCase(again=("shared_experts",), experts=4, shared=96, differs=0.0002),
    MegatronCase(again=("moe",), experts=4, differs=0.0014),
)
_ONE, _TWO = {"micro_batch": 1, "micro_batches": 2}, {"pipeline": 2, "micro_batch": 1, "micro_batches": 3}
OF_VERL = (
    MegatronCase(**_ONE, verl=True),
    MegatronCase(tensor=2, micro_batch=1, verl=True),
    MegatronCase(**_ONE, verl=True, forward_only=True),
    MegatronCase(tensor=2, micro_batch=1, verl=True, forward_only=True),
    MegatronCase(**_TWO, verl=True, forward_only=True),
    MegatronCase(**_ONE, values=True),
    MegatronCase(tensor=2, micro_batch=1, values=True),
    MegatronCase(**_TWO, values=True),
    MegatronCase(**_TWO, values=True, forward_only=True),
)
"""What verl's workers run: its actor's loss, passes forward only, and its critic's last layer."""
