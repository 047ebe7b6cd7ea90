"""What is said of an engine that serves: its rules, its words, its command line. The engines are found by `known`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.serving.memory import EngineMemory, EngineOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A server as it is to be started."""

    model: str
    memory: EngineMemory
    tensor_parallel: int
    data_parallel: int
    requests: int
    """That one replica must hold."""
    utilization: float | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    fp8_cache: bool
    eager: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One engine."""

    word: str
    """As `--server` names it."""
    title: str
    version: str
    """The release whose source was read."""
    share: str
    """Its own option for the share of a device."""
    beside: bool
    """Whether its share is weights and cache alone, and all else is to fit beside it."""
    usual_share: float | None
    """Of a device where nobody says one; None: it depends on the device and on how it is started."""
    states: bool
    """Whether what it keeps of layers without attention is computed."""
    knows: str
    """What of it is computed, in a few words."""
    memory: Callable[[ModelSpec, Mapping[str, Any], Gpu, int, EngineOptions], EngineMemory]
    """Of one rank: model, its decoder's config, device, its bytes. UsageError for a cache that is not computed."""
    command: Callable[[Asked], list[str]]
    refusal: Callable[[Mapping[str, Any], int], str | None]
    """Why it cannot split a model among so many ranks."""
    asleep: str
    """What stays on the device while it sleeps."""
