"""What is to be served: the options of one server, each with where its value came from."""

from dataclasses import field

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.workload.generation import CacheType
from gpu_plan.planner.workload.precisions import DEFAULT_WEIGHTS, WeightType
from gpu_plan.planner.workload.settled import Basis, Settled


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeWorkload(Settled):
    """Requests that a server must hold at once. `None` means: to be searched, or the server's own choice."""

    task: str = "infer"
    server: str = "vllm"
    context: int = 4096
    """Longest request, prompt and answer: the server's `--max-model-len`."""
    concurrency: int = 1
    """Requests of full context that are to be held at once, by all replicas together."""
    utilization: float | None = None
    """Share of each device that a server may take."""
    precision: WeightType = DEFAULT_WEIGHTS
    kv_dtype: CacheType = CacheType.AUTO
    quantize: str = "none"
    strategy: str | None = None
    tensor_parallel: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool = False
    settings: tuple[tuple[str, str], ...] = ()
    basis: tuple[tuple[str, Basis], ...] = field(default=(), compare=False)
