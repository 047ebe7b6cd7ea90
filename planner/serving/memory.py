"""One rank of an engine on one device: what it holds, what is left for its cache, and what that holds of requests."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from gpu_plan.planner.memory.overheads import Term
from gpu_plan.planner.serving.profile import Batching, ProfileRun
from gpu_plan.planner.serving.weights import RankWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What an engine is told; None: its own choice."""

    max_model_len: int
    """Longest request, prompt and answer."""
    taken: tuple[int, int, int]
    """Bytes of the device that are gone before the engine measures: fewest, expected, most."""
    utilization: float | None = None
    """Share of the device, as the engine itself means it."""
    tensor_parallel: int = 1
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    least_seqs: int = 1
    """Requests that are to be held at once."""
    block_size: int | None = None
    eager: bool = False
    """No CUDA graphs are captured."""
    multimodal: bool = False
    """Whether the model has an encoder, of which nothing is served here."""
    element_bytes: int = 2
    """Of the type of the computation."""
    cache_bytes: int = 2
    """Of an element of the cache."""


class Layout(Protocol):
    """How a cache is laid out; bytes of one rank."""

    @property
    def bytes_per_block(self) -> int:
        """Of what is handed out at once."""

    @property
    def block_tokens(self) -> int:
        """Tokens of it."""

    def concurrency(self, available: int, tokens: int, in_flight: int) -> float:
        """Requests of so many tokens that the bytes hold at once; 0 where there is nothing."""

    def longest(self, available: int, most: int, in_flight: int, requests: int = 1) -> int:
        """Tokens of the longest requests of which so many fit at once, at most `most`; 0 where none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory(ABC):
    """One rank of an engine; bytes."""

    total: int
    """The device's whole memory."""
    utilization: float
    """The share that it takes, as it means it."""
    requested: int
    """The share in bytes."""
    weights: RankWeights
    run: ProfileRun
    graphs: Term
    outside: Term
    """Beside torch, from start to the end of the profile."""
    layout: Layout
    batch: Batching
    max_model_len: int

    @property
    @abstractmethod
    def available(self) -> int:
        """What is left for the cache; negative where nothing is."""

    @property
    @abstractmethod
    def least_available(self) -> int:
        """The same where everything uncertain is at its most."""

    @property
    @abstractmethod
    def most_available(self) -> int:
        """The same where everything uncertain is at its least."""

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Tokens that may be computed and not yet settled."""

    @property
    @abstractmethod
    def surely_runs(self) -> bool:
        """Whether what is uncertain leaves room for its largest batch in any case."""

    @abstractmethod
    def failure(self, baseline: int) -> str | None:
        """Why it ends with an error on a device of which `baseline` bytes are gone before it measures."""

    @property
    @abstractmethod
    def stays_asleep(self) -> int:
        """What sleeping does not give back."""

    @property
    def held(self) -> int:
        """What stands on the device whatever the cache holds, without graphs and what is not torch's."""
        return self.weights.nbytes + self.run.buffers + self.run.workspace

    @property
    def blocks(self) -> int:
        """What the cache hands out, in pieces."""
        return max(0, self.available // self.layout.bytes_per_block)

    @property
    def cache_bytes(self) -> int:
        """Of the cache."""
        return self.blocks * self.layout.bytes_per_block

    def concurrency(self, available: int | None = None) -> float:
        """Requests of `max_model_len` tokens that are held at once."""
        bytes_ = self.available if available is None else available
        return self.layout.concurrency(bytes_, self.max_model_len, self.in_flight)

    @property
    def cache_tokens(self) -> int:
        """Tokens that the cache holds of requests of full length."""
        return int(self.concurrency() * self.max_model_len)

    def longest(self, most: int, requests: int = 1) -> int:
        """Tokens of the longest requests of which so many are held at once."""
        return self.layout.longest(self.available, most, self.in_flight, requests)
