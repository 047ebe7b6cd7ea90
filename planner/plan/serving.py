"""What is said about one way to serve: the server's share of a device, its cache in blocks, and what it holds.

These stand in an optional field of a plan's candidate; a plan of another job has none of them.
"""

from dataclasses import field

from gpu_plan.planner.plain.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingFigures:
    """One replica of a server; bytes of one of its ranks."""

    server: str
    title: str = "vLLM"
    """As it writes itself."""
    version: str
    """The release whose rules these are."""
    share: float = 0.0
    """Of a device that it takes, as the server itself means it: of vLLM of the whole, of SGLang of what is free."""
    requested_bytes: int
    """The share in bytes."""
    beside: bool = False
    """Whether the share is weights and cache alone, and all else is to fit beside it."""
    weight_bytes: int
    """Parameters, rotary tables and copies, once they are loaded."""
    buffer_bytes: int
    """What it keeps for every request and for its kernels, whatever the cache holds."""
    activation_bytes: int
    """Kept free for the largest batch and for sampling."""
    graph_bytes: int
    """CUDA graphs, as expected."""
    outside_bytes: int
    """Kernels and libraries beside torch, as expected."""
    available_bytes: int
    """For the cache (vLLM logs `Available KV cache memory`); negative where nothing is left."""
    available_low_bytes: int
    available_high_bytes: int
    block_bytes: int
    """Of one block id on one rank, all layers of its group."""
    block_tokens: int
    blocks: int
    """`# GPU blocks`."""
    cache_tokens: int
    """`GPU KV cache size`, of one replica."""
    max_concurrency: float
    """Requests of full context that one replica holds at once: `Maximum concurrency`."""
    max_concurrency_low: float
    max_concurrency_high: float
    max_context: int
    """Longest request of which the asked concurrency is held; at most the model's positions."""
    max_batched_tokens: int
    max_sequences: int
    replicas: int = 1
    left_over_bytes: int = 0
    """Of the device, what the server leaves to others."""
    held_requests: int = field(init=False)
    """Requests of full context that all replicas hold together."""

    def __post_init__(self) -> None:
        for name in ("requested_bytes", "weight_bytes", "buffer_bytes", "activation_bytes", "blocks", "replicas"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, below 0")
        if not self.available_low_bytes <= self.available_bytes <= self.available_high_bytes:
            raise ValueError("available_bytes does not lie between its low and its high")
        object.__setattr__(self, "held_requests", int(self.max_concurrency) * self.replicas)
