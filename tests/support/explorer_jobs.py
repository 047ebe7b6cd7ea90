"""Hand-made answers for kinds of jobs beside a model's training: generations, and nodes whose RAM is known."""

from dataclasses import replace

from gpu_plan.planner.plan.document import (
    Candidate,
    HostFigures,
    InferenceFigures,
    StrategyChoice,
    UncertainTerm,
    workload_document,
)
from gpu_plan.planner.workload.generation import InferWorkload
from gpu_plan.tui.engine.messages import Picture, RankClass
from gpu_plan.tui.state import State
from tests.support.explorer import columns, picture
from tests.support.plan_example import llama_on_8xh100, memory, speed

GENERATION_STATE = State(model="meta-llama/Llama-3.1-8B", gpus="8xH100", given=(("task", "infer"),))
SCRIPT_STATE = State(model="train.py", gpus="8xH100", script_words=("--steps", "20"))
WEIGHTS = 16_060_522_496


def generation(name: str, degree: int, batch: int, context: int) -> Candidate:
    """Llama-3.1-8B on eight devices."""
    cache = 131_072 * context * batch // degree
    figures = memory(
        phase="prefill", parameters=WEIGHTS // degree, activations=130_000 * context * batch // degree, kv_cache=cache,
        temporary=64_000_000,
    )  # fmt: skip
    inference = InferenceFigures(
        prompt_tokens=context - 1,
        weight_bytes=WEIGHTS // degree,
        kv_cache_bytes=cache,
        load_peak_bytes=WEIGHTS // degree,
        prefill_peak_bytes=figures.peak_allocated_bytes,
        decode_peak_bytes=figures.peak_allocated_bytes - 1_000_000,
        prefill_seconds=0.14 / degree,
        decode_seconds=0.02,
        prefill_tokens_per_second=context * batch * degree / 0.14,
        decode_tokens_per_second=50.0 * batch,
        max_context=131_072 if degree == 1 else None,
        max_batch=54 if degree == 1 else None,
        limits={"max_context": "positions", "max_batch": "memory"} if degree == 1 else {},
    )
    choice = StrategyChoice(
        name=name, data_parallel=8 // degree, tensor_parallel=degree, micro_batch_size=batch, precision="bf16"
    )
    lost = figures.verdict == "no"
    return Candidate(
        strategy=choice,
        verdict=figures.verdict,
        memory=figures,
        speed=speed(0.02, 8 * batch, 0.01),
        inference=inference,
        reason="needs too much" if lost else None,
    )


def generation_document(request):
    """The plans of a request of --task infer, or the one that it pins."""
    words = dict(request.words)
    context, batch = int(words.get("context", "4096")), int(words.get("batch", "1"))
    ways = [("replicas", 1), ("tp", 2), ("tp", 4)]
    if request.pinned:
        degree = int(words.get("tp", "1"))
        ways = [(words.get("strategy", "replicas"), degree)]
    found = [generation(name, degree, batch, context) for name, degree in ways]
    return replace(
        llama_on_8xh100(),
        command=request.command,
        workload=workload_document(InferWorkload(context=context, batch=batch)),
        plans=tuple(candidate for candidate in found if candidate.verdict != "no"),
        rejected=tuple(candidate for candidate in found if candidate.verdict == "no"),
    )


def generation_picture(request, exact=True) -> Picture:
    """The picture of a generation: load, prefill, decode; another device holds less."""
    document = generation_document(request)
    (candidate,) = (*document.plans, *document.rejected)
    peak = candidate.memory.peak_allocated_bytes
    drawn = columns()
    phases = tuple("load" if at < 16 else "prefill" if at < 60 else "decode" for at in range(len(drawn.phases)))
    return Picture(
        document=document,
        exact=exact,
        columns=replace(drawn, phases=phases) if exact else None,
        ranks=(
            RankClass(name="worst device", at_peak=(), peak_allocated_bytes=peak),
            RankClass(name="cuda:1", at_peak=(("parameters", 2 * 2**30),), peak_allocated_bytes=2 * 2**30),
        ),
    )


def with_host(made: Picture, ram: int | None) -> Picture:
    """The same on nodes with so much RAM, of which the job takes some at three moments; `load` is uncertain."""
    gib = 2**30
    terms = (
        UncertainTerm(name="load", bytes=0, low_bytes=0, high_bytes=64 * gib, basis="source"),
        UncertainTerm(name="step", bytes=30 * gib, low_bytes=30 * gib, high_bytes=30 * gib, basis="source"),
        UncertainTerm(name="save", bytes=12 * gib, low_bytes=12 * gib, high_bytes=12 * gib, basis="source"),
    )
    host = HostFigures(load_bytes=0, step_bytes=30 * gib, save_bytes=12 * gib, terms=terms)
    document = made.document

    def hosted(candidate: Candidate) -> Candidate:
        return replace(candidate, memory=replace(candidate.memory, host=host))

    cluster = {**document.cluster, "host_ram_bytes_per_node": ram}
    return replace(
        made,
        document=replace(
            document,
            cluster=cluster,
            plans=tuple(map(hosted, document.plans)),
            rejected=tuple(map(hosted, document.rejected)),
        ),
    )


def on_known_nodes(request, exact=True) -> Picture:
    """`picture` on nodes with 100 GiB of RAM."""
    return with_host(picture(request, exact), 100 * 2**30)
