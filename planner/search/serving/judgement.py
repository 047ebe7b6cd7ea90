"""What one way to serve takes of a device, and how many requests it holds."""

from dataclasses import dataclass

from gpu_plan.planner.memory.profile import StandingTensor
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.serving.memory import EngineMemory
from gpu_plan.planner.speed.rates import Rate
from gpu_plan.planner.strategy.generation.layout import Layout
from gpu_plan.planner.trace.events import Category
from gpu_plan.planner.units import ceil_div, format_gib


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingJudgement(Judgement):
    """One replica's rank, judged."""

    layout: Layout
    engine: EngineMemory
    concurrency: int
    """Requests of full context that are asked of all replicas."""
    bandwidth: Rate
    """Bytes per second of the device's memory."""
    exchange: Rate
    """Seconds of a step's collectives, as durations: `slow` is the longest."""
    baseline: int
    """What stands on the device before the server measures: context and NCCL."""
    kept_free: int = 0
    """Bytes of the device that others have: the server measures the whole device, and ends where less is free than it
    would take (vllm/v1/worker/utils.py: request_memory)."""

    @property
    def title(self) -> str:
        return self.layout.title

    @property
    def moving_parts(self) -> int:
        return self.layout.moving_parts

    @property
    def asked(self) -> int:
        """Requests that one replica must hold."""
        return ceil_div(self.concurrency, self.layout.data_parallel)

    @property
    def verdict(self) -> str:
        """`fits` where even the least cache holds what is asked, `tight` where only the most does."""
        if self.failure_reason is not None:
            return "no"
        engine = self.engine
        surely = engine.surely_runs and engine.concurrency(engine.least_available) >= self.asked
        return "fits" if surely else "tight"

    @property
    def failure_reason(self) -> str | None:
        """Why the engine ends with an error, or holds fewer requests than are asked."""
        engine = self.engine
        ends = engine.failure(self.baseline)
        if ends is not None:
            return ends
        if self.kept_free and self.expected_bytes > self.capacity_bytes:
            share = self.capacity_bytes / (self.capacity_bytes + self.kept_free)
            return (
                f"takes {format_gib(self.expected_bytes)} GiB whatever others have, and"
                f" {format_gib(self.capacity_bytes)} are left: --gpu-memory-utilization below {share:.2f} asks for less"
            )
        most = engine.concurrency(engine.most_available)
        if most < 1:
            cache, longest = format_gib(engine.cache_bytes), engine.longest(engine.max_model_len)
            return f"its cache of {cache} GiB holds no request of {engine.max_model_len:,} tokens: at most {longest:,}"
        if most < self.asked:
            held = engine.concurrency()
            each = "" if self.layout.data_parallel == 1 else " of each replica"
            return (
                f"holds {held:.1f} requests of {engine.max_model_len:,} tokens at once, {self.asked} are asked{each}:"
                " the rest would wait"
            )
        return None

    @property
    def step_bytes(self) -> tuple[int, int, int]:
        """Read from memory for one token of each request at full context: least, expected and most, as experts are
        chosen."""
        share = min(1.0, self.asked / max(self.engine.concurrency(), 1.0))
        cache = round(share * self.engine.cache_bytes)
        least, expected, most = self.engine.weights.read(self.asked)
        return least + cache, expected + cache, most + cache

    @property
    def step_bounds(self) -> tuple[float, float, float]:
        """Seconds of one token of each request: fast, expected, slow. Reading, then what ranks wait for."""
        slow, expected, fast = self.bandwidth.bounds
        least, usual, most = self.step_bytes
        waits = self.exchange
        return least / fast + waits.fast, usual / expected + waits.expected, most / slow + waits.slow

    @property
    def step_seconds(self) -> float:
        return self.step_bounds[1]

    @property
    def seconds(self) -> tuple[float, ...]:
        return (self.step_seconds / self._requests,)

    @property
    def samples_per_second(self) -> float:
        return self._requests / self.step_seconds

    @property
    def _requests(self) -> int:
        return self.asked * self.layout.data_parallel

    @property
    def stream(self) -> RankStream:
        raise NotImplementedError("a server is computed, not replayed")

    @property
    def replayed(self) -> int:
        return self.asked

    @property
    def standing(self) -> tuple[StandingTensor, ...]:
        """What stands at the peak, largest first."""
        engine = self.engine
        parts = (
            (engine.weights.parameters, Category.PARAMETERS, "weights", "load_model"),
            (engine.weights.copies, Category.PARAMETERS, "kv_b_proj", "process_weights_after_loading"),
            (engine.weights.rotary, Category.BUFFERS, "rotary_emb", "_compute_cos_sin_cache"),
            (engine.run.buffers, Category.BUFFERS, "sampler", "PenaltiesState"),
            (engine.run.workspace, Category.BUFFERS, "experts", "workspace_shapes"),
            (engine.cache_bytes, Category.KV_CACHE, "cache", "initialize_kv_cache"),
            (engine.run.transient, Category.ACTIVATIONS, "model", "profile_run"),
        )
        found = [
            StandingTensor(nbytes=size, category=kind, module=module, operator=operator, shape="", basis="source")
            for size, kind, module, operator in parts
            if size
        ]
        return tuple(sorted(found, key=lambda one: -one.nbytes))

    @property
    def notes(self) -> tuple[str, ...]:
        batch = self.engine.batch
        return (
            f"at most {batch.max_num_seqs} sequences and {batch.max_num_batched_tokens:,} tokens are computed at once",
        )
