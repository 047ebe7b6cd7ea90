"""An engine beside a trainer: what it holds of a device in each phase, by its own rules.

trl 1.16: generation/vllm_generation.py (VLLMGeneration: _init_vllm, sync_weights, generate) sets the share, 4,096
tokens a batch and as many sequences as a rank's group generates; asleep at level 2. vLLM 0.33.0:
v1/worker/gpu_worker.py (sleep, load_model, initialize_from_config): what lies in the pools of weights and of the cache
goes, the rest stays.
"""

from dataclasses import dataclass, replace
from typing import Any

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.serve.prepare import prepare as prepare_serving
from gpu_plan.planner.memory.overheads import Term
from gpu_plan.planner.memory.phases import Standing
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.options.recipe.engine import EngineGiven
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.plan.document import Assumption
from gpu_plan.planner.plan.recipe import EngineFigures
from gpu_plan.planner.serving.memory import EngineMemory
from gpu_plan.planner.serving.server import Server
from gpu_plan.planner.speed.rates import memory_rate
from gpu_plan.planner.strategy.generation.layout import Layout, whole
from gpu_plan.planner.trace.events import Category
from gpu_plan.planner.units import ceil_div, format_gib

_BATCHED_TOKENS = 4096
"""max_num_batched_tokens, as TRL sets it beside a trainer."""
_SHARES = 100
SLEEPS = Assumption(
    text="the engine sleeps meanwhile in plans whose update has no room beside it awake: what sleeping and waking take"
    " is not counted (--vllm-sleep, --no-vllm-sleep)",
    basis="assumed",
)
VLLM = "vLLM"
"""In the place of a module: what is the engine's, whichever it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One rank of the engine, and how it is used."""

    given: EngineGiven
    memory: EngineMemory
    server: Server
    """Which engine it is."""
    gpus: int
    tensor_parallel: int
    bytes_per_second: float
    """Of one device's memory."""
    prompt_len: int
    completion_len: int

    @property
    def beside(self) -> bool:
        """Whether it lies on the devices that train."""
        return self.given.mode == "colocate"

    @property
    def _stays(self) -> int:
        """What lies in no pool that sleeping gives back."""
        return self.memory.stays_asleep

    @property
    def held_bytes(self) -> int:
        """What it keeps of a training device whatever runs there."""
        if not self.beside:
            return 0
        return self._stays if self.given.sleeps else self._stays + self._gone_asleep

    @property
    def _gone_asleep(self) -> int:
        """What sleeping gives back: weights, cache, and what of its tables goes with them."""
        memory = self.memory
        beside = memory.run.buffers + memory.run.workspace + memory.graphs.expected + memory.outside.expected
        return memory.weights.nbytes + memory.cache_bytes + beside - self._stays

    @property
    def term(self) -> Term:
        """The same as it is shown beside the allocator."""
        memory = self.memory
        spread = (memory.graphs, memory.outside)
        middle = sum(term.expected for term in spread)
        # What graphs take more is taken from the cache, which the share bounds; asleep there is none.
        low = sum(term.low for term in spread) - middle if self.given.sleeps else 0
        high = sum(term.high for term in spread) - middle if self.given.sleeps else 0
        words = f"asleep: {self.server.asleep}" if self.given.sleeps else "awake: weights, cache and graphs"
        held = self.held_bytes
        return Term(
            name=self.server.title,
            low=max(0, held + low),
            expected=held,
            high=held + high,
            basis="source",
            source=f"{self.server.title} {self.server.version}, {words}, {self.given.share:g} of the device",
        )

    def waking(self) -> tuple[Standing, ...]:
        """Its weights while they are written."""
        if not self.beside or not self.given.sleeps:
            return ()
        return (self._own(self.memory.weights.nbytes, Category.PARAMETERS, "weights"),)

    def generating(self) -> tuple[Standing, ...]:
        """What it takes beside what it keeps."""
        if not self.beside:
            return ()
        batch = self._own(self.memory.run.transient, Category.ACTIVATIONS, "largest batch")
        if not self.given.sleeps:
            return (batch,)
        cache = self._own(self._gone_asleep - self.memory.weights.nbytes, Category.KV_CACHE, "cache")
        return (*self.waking(), cache, batch)

    def rollout_seconds(self, completions: int) -> float:
        """Of all completions of a step: for each token, weights and on average half-grown caches are read."""
        memory, copies = self.memory, self.gpus // self.tensor_parallel
        each = ceil_div(completions, copies)
        at_once = max(1, min(each, int(memory.concurrency()), memory.batch.max_num_seqs))
        per_token = memory.cache_bytes / max(1, memory.cache_tokens)
        read = memory.weights.nbytes + at_once * per_token * (self.prompt_len + self.completion_len / 2)
        return ceil_div(each, at_once) * self.completion_len * read / self.bytes_per_second

    def _own(self, nbytes: int, category: Category, what: str) -> Standing:
        return Standing(nbytes=nbytes, category=category, label=f"{self.server.title}'s {what}", module=VLLM)

    def figures(self, completions: int) -> EngineFigures:
        """As a plan says it."""
        memory = self.memory
        return EngineFigures(
            mode=self.given.mode,
            version=self.server.version,
            title=self.server.title,
            gpus=self.gpus,
            tensor_parallel=self.tensor_parallel,
            share=self.given.share,
            sleeps=self.given.sleeps,
            requested_bytes=memory.requested,
            weight_bytes=memory.weights.nbytes,
            cache_bytes=memory.cache_bytes,
            blocks=memory.blocks,
            cache_tokens=memory.cache_tokens,
            concurrency=memory.concurrency(),
            update_bytes=self.held_bytes,
            rollout_seconds=self.rollout_seconds(completions),
        )


def asleep(engine: Engine | None) -> Engine | None:
    """The same while it sleeps between rollouts."""
    return None if engine is None else replace(engine, given=replace(engine.given, sleeps=True))


@dataclass(frozen=True, slots=True)
class Engines:
    """Engines of one model on one kind of device."""

    given: EngineGiven
    prompt_len: int
    completion_len: int
    server: Any
    """The evaluator of servers."""
    cluster: Cluster

    def on(self, gpus: int, tensor_parallel: int, sequences: int | None) -> Engine:
        """The engine on so many devices. UsageError in one line where nothing is left for a request."""
        asked = self.given
        found = self._memory(asked.share, tensor_parallel, sequences)
        if found.concurrency() < 1:
            raise UsageError(self._too_little(found, tensor_parallel, sequences))
        return Engine(
            given=asked,
            memory=found,
            server=self.server.server,
            gpus=gpus,
            tensor_parallel=tensor_parallel,
            bytes_per_second=memory_rate(self.cluster.gpu).expected,
            prompt_len=self.prompt_len,
            completion_len=self.completion_len,
        )

    def _memory(self, share: float, tensor_parallel: int, sequences: int | None) -> EngineMemory:
        workload = replace(self.server.workload, utilization=share, max_num_seqs=sequences)
        layout = whole(1) if tensor_parallel == 1 else Layout(name="tp", tensor_parallel=tensor_parallel)
        found: EngineMemory = replace(self.server, workload=workload).engine(layout, workload.context)
        return found

    def _too_little(self, found: EngineMemory, ranks: int, sequences: int | None) -> str:
        shares = (share / _SHARES for share in range(1, _SHARES))
        engine, share_of = self.server.server, "--vllm-memory"
        enough = next((s for s in shares if self._memory(s, ranks, sequences).concurrency() >= 1), None)
        advice = "give more --vllm-tp" if enough is None else f"from {enough:g} on one is held"
        return (
            f"{share_of} {self.given.share:g} gives {engine.title} {format_gib(found.requested)} GiB of each"
            f" GPU: its weights take {format_gib(found.weights.nbytes)}, and what is left holds no request of"
            f" {found.max_model_len:,} tokens: {advice}"
        )


def engines(
    asked: EngineGiven, lengths: tuple[int, int], request: Request, cluster: Cluster, source: ModelSource, note: Note
) -> Engines:
    """Those that the options ask for, for requests of so many tokens of prompt and of completion.

    UsageError for a model that it does not serve, and for degrees.
    """
    ranks = asked.tensor_parallel or 1
    fits = not cluster.gpus_per_node % ranks or (not ranks % cluster.gpus_per_node and not cluster.world_size % ranks)
    if not fits and asked.mode == "colocate":
        raise UsageError(f"--vllm-tp {ranks} does not divide the {cluster.gpus_per_node} GPUs of a node")
    words = {
        "task": "infer",
        "server": asked.engine,
        "context": str(sum(lengths)),
        "gpu-memory-utilization": str(asked.share),
    }
    if asked.mode == "colocate":
        words["max-num-batched-tokens"] = str(asked.batched_tokens or _BATCHED_TOKENS)
    elif asked.batched_tokens:
        words["max-num-batched-tokens"] = str(asked.batched_tokens)
    if asked.eager:
        words["enforce-eager"] = "true"
    inner = replace(
        request, words=tuple(words.items()), settings=(), snapshot=False, plot=False, schedule=False, pinned=False
    )
    task: Any = prepare_serving(inner, cluster, source, note).task
    return Engines(asked, *lengths, task.evaluator, cluster)
