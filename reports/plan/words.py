"""A plan's figures in words, the same in every report. Nothing here knows a format."""

from collections.abc import Sequence

from gpu_plan.planner.plan.document import (
    Alternative,
    Candidate,
    Evidence,
    HostFigures,
    JobFigures,
    MemoryFigures,
    PlanDocument,
    SpeedFigures,
    StrategyChoice,
    UncertainTerm,
)
from gpu_plan.planner.strategy.known import known_traits, with_degree
from gpu_plan.planner.units import (
    GIB,
    format_bytes,
    format_count,
    format_dollars,
    format_gib,
    format_hours,
    format_short,
)
from gpu_plan.reports.durations import seconds
from gpu_plan.reports.plan import generation_words
from gpu_plan.reports.plan.added import rank_words, recipe_words, serving_words, several_words

_OTHERS = {
    "replicas": "replicas",
    "tp": "tensor parallel",
    "pp": "pipeline stages",
    "device-map": "device map",
}
"""Titles of what is no strategy of training in this version."""
VERDICTS = {"fits": "FITS", "tight": "TIGHT", "no": "OOM"}
_DEGREES = (("tensor_parallel", "TP"), ("pipeline_parallel", "PP"), ("context_parallel", "CP"))
_EVIDENCE_ORDER: tuple[Evidence, ...] = ("assumed", "measured", "source", "traced")


def focus(document: PlanDocument) -> Candidate | None:
    """The candidate to show in full: the best plan, else the one that misses by least."""
    if document.best is not None:
        return document.best
    evaluated = [candidate for candidate in document.rejected if candidate.memory is not None]
    return max(evaluated, key=_headroom, default=None)


def _headroom(candidate: Candidate) -> float:
    return candidate.memory.headroom_bytes if candidate.memory else float("-inf")


def model_words(document: PlanDocument) -> list[str]:
    """What the model is, in pieces."""
    model = document.model
    trained = model.trainable_parameters
    share = "" if trained == model.parameters else f", {format_count(trained)} trainable"
    pieces = [model.id, model.class_name, f"{format_count(model.parameters)} parameters{share}"]
    if model.stored is not None:
        kinds = "/".join(list(model.stored.by_dtype)[:2])
        pieces.append(f"stored as {kinds}, {format_bytes(model.stored.bytes)}")
    return pieces


def cluster_words(document: PlanDocument) -> list[str]:
    """What the machines are, in pieces."""
    cluster = document.cluster
    gpus, nodes, usable = (_integer(cluster[key]) for key in ("gpus", "nodes", "usable_bytes"))
    name = str(cluster.get("gpu_name") or cluster["gpu"])
    count = f"{gpus} × {name}" + (f" on {nodes} nodes" if nodes > 1 else "")
    pieces = [str(cluster["spec"]), count, f"{format_gib(usable)} GiB usable each"]
    link = cluster.get("intra_node")
    if gpus > 1 and isinstance(link, dict) and isinstance(link.get("link"), str):
        pieces.append(link["link"])
    return pieces


def place_words(document: PlanDocument, choice: StrategyChoice) -> str:
    """` on 8 GPUs`, ` on 2 processes`."""
    count = choice.world_size
    if choice.name == "device-map":
        count *= _integer(document.cluster["gpus_per_node"])
    if document.cluster["gpu"] == "cpu":
        return f" on {count} {'process' if count == 1 else 'processes'}"
    return f" on {count} {'GPU' if count == 1 else 'GPUs'}"


def miss_words(document: PlanDocument, shown: Candidate) -> str:
    """Why a candidate is shown in full though it does not fit; the reason where the device's figures do not tell it."""
    if shown.memory is not None and shown.memory.headroom_bytes >= 0 and shown.reason is not None:
        return f"does not fit: {shown.reason}"
    return "does not fit" if len(document.rejected) == 1 else "does not fit; it misses by least"


def workload_words(document: PlanDocument) -> list[str]:
    """What is to be run, in pieces; what the search chose stands with the plan."""
    workload = document.workload
    if workload.get("server") is not None:
        return serving_words.job_words(workload)
    if workload.get("task") == "infer":
        return generation_words.job_words(workload)
    pieces = [str(workload.get("task", "train"))]
    if document.model.has_sequence and workload.get("seq_len") is not None:
        pieces.append(f"sequence length {workload['seq_len']}")
    if workload.get("global_batch") is not None:
        pieces.append(f"global batch {workload['global_batch']}")
    if workload.get("lora_rank") is not None:
        pieces.append(f"{workload['peft']} rank {workload['lora_rank']}")
    asked = known_traits(str(workload.get("strategy")))
    looped = asked is None or not asked.own_model  # a library with its own model has its own loop
    names = ("precision", "optimizer", "attention", *(("stack",) if looped else ()))
    pieces += [str(workload[name]) for name in names if workload.get(name) is not None]
    if document.stack is not None and looped:
        read = "" if document.stack.get("checked") == "run" else ", read, not run"
        pieces[-1] = f"stack {pieces[-1]} ({document.stack.get('project')} {document.stack.get('version')}{read})"
    return pieces


def strategy_title(name: str) -> str:
    """`FSDP2`; the name itself where nothing of this version has it."""
    traits = known_traits(name)
    return _OTHERS.get(name, name) if traits is None else traits.title


def strategy_words(choice: StrategyChoice) -> str:
    """`FSDP2`, `ZeRO-3 + optimizer offload`, `FSDP2 × TP 2`, `FSDP2 × EP 4`, `HSDP of 2 replicas`."""
    title = strategy_title(choice.name)
    for name, mark in _DEGREES:
        if getattr(choice, name) > 1:
            title = with_degree(title, mark, getattr(choice, name))
    if choice.schedule and choice.schedule != "1f1b":
        title += f" {choice.schedule}"
    if choice.expert_parallel > 1:
        title = with_degree(title, "EP", choice.expert_parallel)
    title += f" of {choice.dp_replicate} replicas" if choice.dp_replicate > 1 else ""
    title += "" if choice.reshards else " without resharding"
    title += " with expandable segments" if choice.expandable_segments else ""
    kind = "full" if choice.offload == "all" else choice.offload
    return title if kind == "none" else f"{title} + {kind} offload"


def batch_words(choice: StrategyChoice) -> str:
    """`micro batch 2 × 4 accumulation steps × 8 ranks = global batch 64`."""
    pieces = [f"micro batch {choice.micro_batch_size}"]
    if choice.gradient_accumulation_steps > 1:
        pieces.append(f"{choice.gradient_accumulation_steps} accumulation steps")
    if choice.data_parallel > 1:
        pieces.append(f"{choice.data_parallel} ranks")
    product = f" = global batch {choice.global_batch_size}" if len(pieces) > 1 else ""
    return " × ".join(pieces) + product


def alternative_rows(document: PlanDocument) -> list[tuple[str, str]]:
    """What else could be done: the change with its plan, and its figures."""
    beside = document.best.speed if document.best is not None else None
    gpus = _integer(document.cluster["gpus"])
    return [
        (f"{one.change}: {one.plan}", ", ".join(_alternative_figures(one, beside, gpus)))
        for one in document.alternatives
    ]


def untraced_words(document: PlanDocument) -> str | None:
    """Which changes were not evaluated, and how they are; None where there are none."""
    changes = () if document.search is None else document.search.untraced_alternatives
    if not changes:
        return None
    traces = "takes a trace of its own" if len(changes) == 1 else "each takes a trace of its own"
    return f"not evaluated, {traces}: {', '.join(changes)} (--alternatives does)"


def _alternative_figures(one: Alternative, beside: SpeedFigures | None, gpus: int) -> list[str]:
    pieces = [f"{gib(one.device_used_bytes)} of {gib(one.capacity_bytes)} GiB"]
    if one.host_bytes_per_node:
        pieces.append(f"{gib(one.host_bytes_per_node)} GiB of each node's RAM")
    most = "at most " if one.at_most else ""
    if one.tokens_per_second is not None:
        pieces.append(f"{most}{one.tokens_per_second:,.0f} tokens/s in all")
    else:
        pieces.append(f"{most}{rate(one.samples_per_second)} samples/s in all")
    if beside is not None:
        mine, theirs = one.samples_per_second, beside.samples_per_second
        if one.tokens_per_second is not None and beside.tokens_per_second_per_gpu is not None:
            mine, theirs = one.tokens_per_second, beside.tokens_per_second_per_gpu * gpus
        if theirs:
            pieces.append(
                f"{most}{format_short(mine / theirs) if mine < theirs else f'{mine / theirs:,.2f}'} times the speed"
            )
    if one.usd_per_hour is not None:
        pieces.append(f"{format_dollars(one.usd_per_hour)} an hour")
        if one.tokens_per_second:
            pieces.append(f"{format_dollars(one.usd_per_hour / 3600 * 1e6 / one.tokens_per_second)} a million tokens")
    return pieces


def job_figure_words(document: PlanDocument) -> list[str]:
    """What the whole job takes, in pieces; none where it was not said how long it is."""
    job = document.whole_job
    if job is None:
        return []
    pieces = [f"{format_count(job.tokens)} tokens take {format_hours(job.hours)}"]
    pieces.append(f"{format_short(job.gpu_hours)} GPU-hours")
    if job.usd is not None and document.prices:
        price = document.prices[0]
        told = ", ".join(dict.fromkeys((price.provider, price.date)))
        each = f"{format_dollars(price.usd_per_hour)} an hour and GPU, {told}"
        pieces.append(f"{format_dollars(job.usd)} ({each})")
    if job.weights_bytes is not None and job.checkpoint_bytes is not None:
        what = "adapters" if str(document.workload.get("peft", "none")) != "none" else "weights"
        pieces.append(
            f"{what} saved take {format_bytes(job.weights_bytes)}, a checkpoint to go on from"
            f" {format_bytes(job.checkpoint_bytes)}"
        )
    if job.overhead_hours is not None and job.interruptions is not None:
        every = seconds(job.checkpoint_every_seconds or 0.0)
        failures = f"{job.interruptions:,.0f} failures" if job.interruptions >= 1 else "hardly a failure"
        pieces.append(
            f"{_more(job, job.overhead_hours)} for a checkpoint every {every} and {failures}, as published"
            f" of long runs; data loading{'' if job.evaluation_hours is not None else ' and evaluation'} left out"
        )
    if job.evaluation_hours is not None:
        pieces.append(f"{_more(job, job.evaluation_hours)} for evaluations")
    return pieces


def _more(job: JobFigures, hours: float) -> str:
    """Hours beside those of the steps, with what they cost where a price is known."""
    cost = "" if job.usd is None or not job.hours else f" ({format_dollars(job.usd * hours / job.hours)})"
    return f"{format_hours(hours)} more{cost}"


def tight_words(candidate: Candidate) -> str:
    """What a plan that may not run is short of: `needs 180 GiB of node RAM, which is not known`."""
    if candidate.conditions:
        return "; ".join(one.words for one in candidate.conditions)
    if candidate.memory is not None and candidate.memory.num_alloc_retries:
        return "it needs the memory that the allocator keeps cached given back while it runs"
    return "the estimate's interval straddles the capacity"


def shape_words(candidate: Candidate) -> list[str]:
    """Batch and checkpointing of a candidate, in pieces."""
    choice = candidate.strategy
    if candidate.serving is not None:
        return serving_words.shape_words(candidate)
    if candidate.inference is not None:
        return generation_words.shape_words(choice)
    return [batch_words(choice), checkpointing_words(choice)]


def extra_lines(candidate: Candidate) -> list[list[str]]:
    """What a generation, a server, several models or experts over ranks add to a candidate, a line each."""
    return [
        *generation_words.lines(candidate),
        *serving_words.lines(candidate),
        *recipe_words.lines(candidate),
        *several_words.lines(candidate),
        *rank_words.crowded_lines(candidate),
    ]


def second_column(plans: Sequence[Candidate], otherwise: str) -> str:
    """Heading of what a table of plans shows beside the batch."""
    if any(plan.serving is not None for plan in plans):
        return "holds"
    return "prefill" if any(plan.inference is not None for plan in plans) else otherwise


def ranking_words(candidate: Candidate) -> tuple[str, str]:
    """Batch, and checkpointing or a generation's prefill, as a table of plans shows them."""
    choice, figures = candidate.strategy, candidate.inference
    if candidate.serving is not None:
        return f"{choice.micro_batch_size}×{choice.data_parallel}", f"{candidate.serving.max_concurrency:.1f}"
    if figures is None:
        every = "" if choice.checkpoint_every == 1 else f", 1 in {choice.checkpoint_every}"
        return f"{choice.micro_batch_size}×{choice.gradient_accumulation_steps}", choice.checkpointing + every
    prefill = "" if figures.prefill_seconds is None else seconds(figures.prefill_seconds)
    return f"{choice.micro_batch_size}×{choice.data_parallel}", prefill


def rate_words(candidate: Candidate) -> list[str]:
    """How fast a candidate is expected to be, in pieces; none where it was not evaluated."""
    if candidate.speed is None:
        return []
    if candidate.serving is not None:
        return serving_words.speed_words(candidate.speed)
    if candidate.inference is not None:
        basis = _RATES.get(candidate.speed.basis, f"speed is {candidate.speed.basis}")
        return generation_words.speed_words(candidate.inference, candidate.speed, basis)
    return speed_words(candidate.speed)


def checkpointing_words(choice: StrategyChoice) -> str:
    """`full checkpointing`, `no checkpointing`, `full checkpointing of one layer in 2`."""
    words = f"{'no' if choice.checkpointing == 'none' else choice.checkpointing} checkpointing"
    return words if choice.checkpoint_every == 1 else f"{words} of one layer in {choice.checkpoint_every}"


def memory_words(memory: MemoryFigures) -> list[str]:
    """How full the device gets, in pieces."""
    low, high = memory.device_used_low_bytes, memory.device_used_high_bytes
    between = f" ({gib(low)} to {gib(high)})" if gib(low) != gib(high) else ""
    used = f"{gib(memory.device_used_bytes)} of {gib(memory.capacity_bytes)} GiB used{between}"
    room = memory.headroom_bytes
    pieces = [used, f"{format_gib(abs(room))} GiB {'free' if room >= 0 else 'too much'}"]
    pieces.append(f"peak in {memory.phase_of_peak.replace('_', ' ')}")
    evaluation = memory.phase_peaks.get("evaluation")
    if evaluation is not None:
        pieces.append(f"{gib(evaluation)} GiB allocated at most in evaluation")
    if memory.num_alloc_retries:
        pieces.append(_retries(memory.num_alloc_retries))
    if memory.host_bytes:
        pieces.append(f"{format_bytes(memory.host_bytes)} of host RAM per rank")
    if memory.nvme_bytes:
        pieces.append(f"{format_bytes(memory.nvme_bytes)} of NVMe per rank")
    return pieces


def _retries(count: int) -> str:
    return f"after {count} allocator {'retry' if count == 1 else 'retries'}, whose time is not counted"


_MUCH = 0.5
"""Share of a node's RAM above which it is told without `--explain`."""


def host_words(document: PlanDocument, memory: MemoryFigures, *, explain: bool = False) -> list[str]:
    """RAM of the node of rank 0 by moment, in pieces; without `explain` none where it is no matter."""
    host, ram = memory.host, document.cluster.get("host_ram_bytes_per_node")
    if host is None:
        return []
    known = ram if isinstance(ram, int) else None
    most = max(_highest(host), host.most_bytes)
    if not explain and (memory.host_bytes == 0 if known is None else most < _MUCH * known):
        return []
    moments = {"load": "while loading", "step": "in steps", "save": "while saving the whole weights"}
    terms = [(_term_words(term, explain), moments.get(term.name, term.name)) for term in host.terms if term.high_bytes]
    pieces = [f"{size}{' per node' if number == 0 else ''} {moment}" for number, (size, moment) in enumerate(terms)]
    if not pieces:
        return ["almost no RAM on each node beyond the processes' own"]
    of = "" if known is None else f" (of {format_gib(known)} GiB)"
    unknown = ["not checked: what the nodes have is not known"] if known is None and memory.host_bytes else []
    return [f"Host RAM: {pieces[0]}{of}", *pieces[1:], *unknown]


def _highest(host: HostFigures) -> int:
    return max((term.high_bytes for term in host.terms), default=0)


def _term_words(term: UncertainTerm, explain: bool) -> str:
    low, high = gib(term.low_bytes), gib(term.high_bytes)
    if low == high:
        return f"{high} GiB"
    return f"up to {high} GiB" + (f" (from {low}, {term.basis})" if explain else "")


def gib(num_bytes: int) -> str:
    """GiB without the unit: one digit, more where that would be next to nothing."""
    return format_gib(num_bytes, 1 if num_bytes == 0 or abs(num_bytes) >= GIB // 10 else 4)


def part_gib(num_bytes: int, memory: MemoryFigures) -> str:
    """A part's GiB: `<0.1` where that is next to nothing of the whole."""
    return "<0.1" if num_bytes < GIB // 10 and memory.device_used_bytes >= GIB else gib(num_bytes)


def free_gib(memory: MemoryFigures) -> str:
    """GiB below the capacity; negative above it."""
    return format_gib(memory.headroom_bytes)


def speed_words(speed: SpeedFigures) -> list[str]:
    """How fast it is expected to be, in pieces."""
    low, high = seconds(speed.step_seconds_low), seconds(speed.step_seconds_high)
    between = f" ({low} to {high})" if low != high else ""
    pieces = [f"{seconds(speed.step_seconds)} per step{between}", throughput(speed)]
    if speed.mfu is not None:
        pieces.append(f"MFU {speed.mfu:.0%}")
    return [*pieces, _RATES.get(speed.basis, f"speed is {speed.basis}")]


_RATES = {
    "measured": "speed from rates measured on this GPU",
    "source": "speed estimated from similar GPUs",
    "assumed": "speed from assumed rates",
}
"""What an expected speed rests on; none is a measurement of this job."""


def throughput(speed: SpeedFigures) -> str:
    """Tokens per second and GPU, or samples per second where there are no tokens."""
    tokens = speed.tokens_per_second_per_gpu
    if tokens is None:
        return f"{rate(speed.samples_per_second)} samples/s in all"
    return f"{rate(tokens)} tokens/s per GPU"


def rate(value: float) -> str:
    """`7,502`, `0.35`."""
    return format_short(value)


def peaks_sentence(memory: MemoryFigures) -> str:
    """The three peaks in one sentence: of tensors, of the allocator, of the device."""
    reserved = memory.peak_reserved_bytes
    kept = "" if reserved is None else f", for which the allocator reserves {gib(reserved)}"
    beside = " and what lies outside it" if reserved is not None else ""
    return (
        f"At the peak tensors take {gib(memory.peak_allocated_bytes)} GiB{kept}; with that{beside} the device shows"
        f" {gib(memory.device_used_bytes)} of {gib(memory.capacity_bytes)} GiB in use."
    )


def memory_rows(memory: MemoryFigures) -> list[tuple[str, str, int]]:
    """Colour key, words and bytes of the parts of the device's memory; those below a thousandth as one."""
    rows = [(name, name.replace("_", " "), size) for name, size in memory.at_peak.items().items()]
    rows[-1] = ("kv_cache", "KV cache", memory.at_peak.kv_cache)
    reserved = memory.peak_reserved_bytes
    cached = 0 if reserved is None else reserved - memory.peak_allocated_bytes
    outside = memory.outside_allocator
    if memory.num_alloc_retries:
        # Without a limit more would be kept than the device has room for.
        beside = memory.peak_allocated_bytes + outside.cuda_context + outside.nccl
        cached = max(0, min(cached, memory.device_used_bytes - beside))
    rows.append(("cached", "cached blocks", cached))
    rows.append(("outside", "CUDA context", outside.cuda_context))
    rows.append(("outside", "NCCL", outside.nccl))
    rows.append(("other", "other", memory.device_used_bytes - sum(size for _, _, size in rows)))
    least = memory.device_used_bytes // 1000
    small = [row for row in rows if 0 < row[2] <= least]
    large = [row for row in rows if row[2] > least]
    if len(small) < 2:
        return large + small
    return [*large, ("small", f"{len(small)} small parts", sum(size for _, _, size in small))]


def ordered_assumptions(document: PlanDocument, *, explain: bool = True) -> list[tuple[str, str]]:
    """Text and basis, the least certain first; without `explain` not where the model reads a value on the host."""
    ordered = sorted(document.assumptions, key=lambda entry: _EVIDENCE_ORDER.index(entry.basis))
    return [(entry.text, entry.basis) for entry in ordered if explain or not entry.text.startswith(_HOST_READ)]


_HOST_READ = "host read "


def _integer(value: object) -> int:
    assert isinstance(value, int)  # the document has checked it
    return value


def search_words(document: PlanDocument) -> str | None:
    """How much was looked at, in one line; None in older files, and where there was one candidate."""
    facts = document.search
    if facts is None or facts.candidates < 2:
        return None
    words = f"{facts.candidates} candidates of {facts.kinds} kinds evaluated"
    if not facts.left_out:
        return words
    kinds = "kind" if len(facts.left_out) == 1 else "kinds"
    return f"{words}; {len(facts.left_out)} {kinds} not traced (--explain says why)"
