"""How a sample's tokens are shared out among ranks, and what each of them holds. Imports no torch."""

from typing import Literal

from gpu_plan.planner.plain.values import dataclass

Method = Literal["ring", "ulysses"]
"""`ring`: torch's `context_parallel`, keys and values go round; `ulysses`: DeepSpeed's, heads go for tokens."""
Rotation = Literal["allgather", "alltoall"]
"""How keys and values go round: all of them at once, or those of one neighbour after the other."""

ROTATIONS: tuple[Rotation, ...] = ("allgather", "alltoall")


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceSplit:
    """One rank's share of every sample."""

    degree: int
    """Ranks that share a sample's tokens."""
    method: Method
    rotation: Rotation = "allgather"
    """Of a ring: accelerate 1.15 utils/dataclasses.py: TorchContextParallelConfig.cp_comm_strategy."""
    rank: int = 0
    """Whose step it is."""

    def key(self) -> str:
        """Stable text."""
        words = f"{self.degree}/{self.method}"
        words += f"/{self.rotation}" if self.method == "ring" else ""
        return words + (f"/{self.rank}" if self.rank else "")

    @property
    def parts(self) -> int:
        """Equal pieces into which a sequence is cut: a ring gives each rank one of the head and one of the tail, so
        that all have as much to attend to (torch _context_parallel/_load_balancer.py: _HeadTailLoadBalancer)."""
        return 2 * self.degree if self.method == "ring" else self.degree

    @property
    def attention_share(self) -> float:
        """What all ranks' attention operators compute of the square of scores: a ring leaves out the halves of blocks
        that lie behind, where one kernel would mask them (_attention.py: _templated_ring_attention)."""
        return (self.degree + 1) / (2 * self.degree) if self.method == "ring" else 1.0

    def positions(self, length: int) -> list[range]:
        """Positions of the rank's tokens in a sequence of `length`, which `parts` divides, in order."""
        each = length // self.parts
        if self.method == "ulysses":
            return [range(self.rank * each, (self.rank + 1) * each)]
        behind = self.parts - 1 - self.rank
        return [range(self.rank * each, (self.rank + 1) * each), range(behind * each, (behind + 1) * each)]
