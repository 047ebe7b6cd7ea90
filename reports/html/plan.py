"""The sections of a plan's page."""

from gpu_plan.planner.plan.document import Candidate, MemoryFigures, PlanDocument, SpeedFigures
from gpu_plan.planner.plan.timeline import Timeline
from gpu_plan.planner.units import format_bytes
from gpu_plan.reports.clean import one_line
from gpu_plan.reports.durations import seconds
from gpu_plan.reports.html.page import bullets, cards, chip, facts, plot, section
from gpu_plan.reports.markup import Child, Html, escaped, table, tag
from gpu_plan.reports.plan import words
from gpu_plan.reports.plan.added.degree_words import DEGREE_HEADS, degree_rows
from gpu_plan.reports.plan.added.rank_words import RANK_HEADS, alike_words, rank_rows
from gpu_plan.reports.plan.command import before_launch, command_lines
from gpu_plan.reports.plan.cost import cost_lines, dollars, unit_words
from gpu_plan.reports.plan.explain import HEADER, explain_rows, explained_share
from gpu_plan.reports.plan.groups import group_rejected
from gpu_plan.reports.plan.pareto import pareto_front
from gpu_plan.reports.plan.stages import STAGE_HEADS, schedule_words, stage_rows

_COMMAND_WIDTH = 96
_CLOSER = Html(" ")


def verdict_head(document: PlanDocument) -> list[Child]:
    """The verdict, what it is about, and the figures that matter most."""
    shown = words.focus(document)
    verdict = "no" if document.best is None else document.best.verdict
    spec = str(document.cluster["spec"])
    if document.best is not None:
        sentence = words.strategy_words(document.best.strategy) + words.place_words(document, document.best.strategy)
    else:
        sentence = "No plan fits this cluster"
    parts: list[Child] = [
        tag("div", words.VERDICTS[verdict], class_=f"verdict {verdict}"),
        tag("h1", f"{document.model.id} on {spec}"),
        tag("p", tag("b", sentence)),
    ]
    if document.headline is not None:
        parts.insert(0, tag("p", tag("b", document.headline)))
    if verdict == "tight" and shown is not None:
        told = words.tight_words(shown)
        plain = f"{told[0].upper()}{told[1:]}: it may or may not fit."
        parts.append(tag("p", f"It {told}." if shown.conditions else plain))
    parts += [
        tag("p", f"{'Instead' if document.best is None else 'You could also'}: {change} ({figures})")
        for change, figures in words.alternative_rows(document)[:3]
    ]
    if document.ranking is not None and document.ranking.why is not None:
        parts.append(tag("p", document.ranking.why))
    looked = words.search_words(document)
    if looked is not None:
        parts.append(tag("p", looked))
    if document.nearest_change is not None:
        parts.append(tag("p", "Nearest change that would fit:", _CLOSER, document.nearest_change))
    if shown is not None:
        parts.append(cards(_cards(document, shown)))
    rows = (
        ("Model", " · ".join(words.model_words(document))),
        ("Cluster", " · ".join(words.cluster_words(document))),
        ("Job", " · ".join(words.workload_words(document))),
    )
    return [*parts, facts(rows)]


def _cards(document: PlanDocument, shown: Candidate) -> list[tuple[str, str]]:
    found = []
    memory, speed = shown.memory, shown.speed
    if memory is not None:
        room = memory.headroom_bytes
        capacity = words.gib(memory.capacity_bytes)
        what = f"GiB used of {capacity}" if document.plans else f"GiB needed by the nearest miss, of {capacity}"
        found.append((words.gib(memory.device_used_bytes), what))
        found.append((words.gib(abs(room)), f"GiB {'free' if room >= 0 else 'too much'}"))
        if memory.host_bytes and memory.host is not None:
            found.append((words.gib(memory.host.most_bytes), "GiB of RAM needed per node"))
    if speed is not None and document.plans:
        found += _speed_cards(shown, speed)
        lines = [line for line in cost_lines(document, shown) if line.per_unit is not None]
        if lines:
            low, high = dollars(lines[0].per_unit), dollars(lines[-1].per_unit)
            found.append((low if low == high else f"{low} to {high}", f"per {unit_words(document)}, rented"))
    return found


def _speed_cards(shown: Candidate, speed: SpeedFigures) -> list[tuple[str, str]]:
    figures = shown.inference
    if shown.serving is not None:
        held = f"{shown.serving.max_concurrency:,.1f}"
        return [(held, "requests of full context held"), (f"{speed.samples_per_second:,.0f}", "tokens/s at most")]
    if figures is not None:
        step = (seconds(speed.step_seconds), "per new token, expected")
        first = [] if figures.prefill_seconds is None else [(seconds(figures.prefill_seconds), "of prefill")]
        rate = figures.decode_tokens_per_second
        return [*first, step, *([] if rate is None else [(f"{rate:,.0f}", "new tokens/s, all replicas")])]
    rate_words, _, unit = words.throughput(speed).partition(" ")
    found = [(seconds(speed.step_seconds), "per step, expected"), (rate_words, unit)]
    return found if speed.mfu is None else [*found, (f"{speed.mfu:.0%}", "MFU")]


def memory_section(document: PlanDocument, top: int) -> Html:
    """What fills the devices: every shown plan as a bar, then the best one's parts."""
    shown = words.focus(document)
    if shown is None or shown.memory is None:
        return Html("")
    from gpu_plan.reports.plots.memory import breakdown

    about = words.strategy_words(shown.strategy) + (" (does not fit)" if not document.plans else "")
    pieces = words.shape_words(shown)
    pieces += words.memory_words(shown.memory) + words.host_words(document, shown.memory, explain=True)
    return section(
        "Memory",
        plot("memory", lambda width: breakdown(document, width, top), "Memory of the worst rank, by plan and category"),
        tag("h3", about),
        tag("p", " · ".join(pieces)),
        tag("p", words.peaks_sentence(shown.memory)),
        [tag("p", " · ".join(line)) for line in words.extra_lines(shown)],
        _parts(shown.memory),
        _uncertain(shown.memory),
        _phases(shown.memory),
        _placement(shown),
        _stages(shown),
        _ranks(shown),
        _degrees(shown),
    )


def _parts(memory: MemoryFigures) -> Html:
    from gpu_plan.reports.plots.style import COLOURS

    rows: list[tuple[Child, ...]] = []
    for key, label, size in words.memory_rows(memory):
        swatch = tag("span", class_="swatch", style=f"background:{COLOURS.get(key, '#888888')}")
        share = size / memory.device_used_bytes if memory.device_used_bytes else 0
        rows.append((Html(swatch + escaped(label)), f"{size:,}", words.part_gib(size, memory), f"{share:.1%}"))
    rows.append((tag("b", "used"), f"{memory.device_used_bytes:,}", words.gib(memory.device_used_bytes), ""))
    rows.append(("capacity", f"{memory.capacity_bytes:,}", words.gib(memory.capacity_bytes), ""))
    return table(("at the peak, worst rank", "bytes", "GiB", "share"), rows, label="memory by category")


def _uncertain(memory: MemoryFigures) -> Html:
    if not memory.uncertain:
        return Html("")
    rows = [
        (term.name, *(words.gib(size) for size in (term.low_bytes, term.bytes, term.high_bytes)), chip(term.basis))
        for term in memory.uncertain
    ]
    sources = [f"{term.name}: {term.source}" for term in memory.uncertain if term.source]
    heads = ("not known exactly, GiB", "low", "expected", "high", "basis")
    return Html(table(heads, rows, label="uncertain terms") + tag("div", bullets(sources), class_="aside"))


def _phases(memory: MemoryFigures) -> Html:
    if not memory.phase_peaks:
        return Html("")
    rows = [(phase.replace("_", " "), format_bytes(size)) for phase, size in memory.phase_peaks.items()]
    rows.append(("between steps", format_bytes(memory.at_rest_bytes)))
    return table(("phase", "most allocated"), rows, label="peaks by phase")


def _placement(candidate: Candidate) -> Html:
    """What stands on which device, where a generation's weights are spread."""
    placement = candidate.placement
    if placement is None or len(placement.devices) < 2:
        return Html("")
    rows = [
        (
            one.device,
            format_bytes(one.weight_bytes),
            format_bytes(one.kv_cache_bytes),
            "" if one.peak_bytes is None else format_bytes(one.peak_bytes),
            "" if one.capacity_bytes is None else format_bytes(one.capacity_bytes),
        )
        for one in placement.devices
    ]
    return table(("device", "weights", "KV cache", "peak", "capacity"), rows, label="what stands where")


def _stages(candidate: Candidate) -> Html:
    """What each rank of a pipeline takes, and how long they wait for one another."""
    if not candidate.stages:
        return Html("")
    from gpu_plan.reports.plots.stages import memory_by_stage, waiting_by_stage

    said = tag("p", " · ".join(schedule_words(candidate)))
    drawn = ""
    if candidate.memory is not None and candidate.speed is not None:
        drawn = plot("stages", lambda width: memory_by_stage(candidate, width), "Memory by stage of the pipeline")
        drawn += plot(
            "bubble",
            lambda width: waiting_by_stage(candidate, width),
            "One step of the pipeline: when each rank computes, and when it waits",
        )
    return Html(said + drawn + table(STAGE_HEADS, stage_rows(candidate), label="memory by stage"))


def _ranks(candidate: Candidate) -> Html:
    """What each kind of rank takes, where parts of the model cannot be shared out evenly."""
    rows = rank_rows(candidate)
    if not rows:
        alike = alike_words(candidate)
        return tag("p", alike) if alike else Html("")
    from gpu_plan.reports.plots.stages import memory_by_rank

    drawn = plot("ranks", lambda width: memory_by_rank(candidate, width), "Memory by kind of rank")
    return Html(drawn + table(RANK_HEADS, rows, label="memory by kind of rank"))


def _degrees(candidate: Candidate) -> Html:
    """What each degree sends, and how long the step waits for it."""
    rows = degree_rows(candidate)
    return table(DEGREE_HEADS, rows, label="what each degree costs") if rows else Html("")


def timeline_section(timeline: Timeline | None) -> Html:
    """One step, event by event; nothing where there is none."""
    if timeline is None:
        return Html("")
    from gpu_plan.reports.plots.timeline import step_panel, told

    def draw(width: float) -> object:
        wide = width > 6
        return step_panel(timeline, (width, 4.2 if wide else 3.8), 560 if wide else 220)

    return section(
        "One step",
        plot("step", draw, "Memory over one step, by category", told(timeline)),  # type: ignore[arg-type]
    )


def alternatives_section(document: PlanDocument, top: int) -> Html:
    """Every plan, the front of those that none beats, and why the others lose."""
    groups = group_rejected(document.rejected, document.plans)
    lost = [
        (words.strategy_words(group.closest.strategy), tag("div", group.reason, class_="reason"), group.aside or "")
        for group in groups
    ]
    body: list[Child] = []
    if document.plans:
        shown = max(top, 12)
        body.append(plan_table(document, shown))
        if len(document.plans) > shown:
            more = len(document.plans) - shown
            body.append(tag("p", f"{more} more in the data at the end of this page", class_="muted"))
    body.append(_pareto_plot(document))
    if lost:
        body.append(tag("h3", "What does not fit, and why"))
        body.append(table(("strategy", "reason", "tried with"), lost, text_columns=3, label="what does not fit"))
    return section("Alternatives", *body)


def plan_table(document: PlanDocument, count: int) -> Html:
    """The first `count` plans, best first."""
    front = {id(plan) for plan in pareto_front(document.plans)}
    rows = [_plan_row(plan, id(plan) in front) for plan in document.plans[:count]]
    heads = (
        "plan",
        "batch",
        words.second_column(document.plans, "checkpointing"),
        "verdict",
        "GiB used",
        "free",
        "step",
        "rate",
        "",
    )
    return table(heads, rows, text_columns=4, label="plans that fit")


def _pareto_plot(document: PlanDocument) -> Html:
    figured = [plan for plan in document.plans if plan.memory and plan.speed]
    if len(figured) < 2:
        return Html("")
    from gpu_plan.reports.plots.memory import pareto

    return plot("pareto", lambda width: pareto(document, width), "Memory against speed of every candidate")


def _plan_row(plan: Candidate, on_front: bool) -> list[Child]:
    choice, memory, speed = plan.strategy, plan.memory, plan.speed
    return [
        words.strategy_words(choice),
        *words.ranking_words(plan),
        tag("b", words.VERDICTS[plan.verdict], class_=plan.verdict),
        "" if memory is None else words.gib(memory.device_used_bytes),
        "" if memory is None else words.free_gib(memory),
        "" if speed is None else seconds(speed.step_seconds),
        "" if speed is None else words.throughput(speed),
        chip("Pareto") if on_front else "",
    ]


def basis_section(document: PlanDocument) -> Html:
    """Warnings, what the figures rest on, and where every value of the job came from."""
    assumptions = [Html(f"{escaped(text)} {chip(basis)}") for text, basis in words.ordered_assumptions(document)]
    basis = document.workload.get("basis")
    origins = basis if isinstance(basis, dict) else {}
    rows = [
        (name.replace("_", " "), _value(value), chip(str(origins.get(name, ""))))
        for name, value in document.workload.items()
        if name != "basis"
    ]
    values = tag("details", tag("summary", "every value of the job, and where it came from"),
                 table(("value", "", ""), rows, text_columns=3, label="values of the job"))  # fmt: skip
    warned = [tag("h3", "Warnings"), bullets(document.warnings)] if document.warnings else []
    return section("What this rests on", *warned, bullets(assumptions), values)


def _value(value: object) -> str:
    if value is None:
        return "searched"
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items()) or "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def explain_section(candidate: Candidate | None) -> Html:
    """The largest tensors at the peak, where they were kept."""
    share = None if candidate is None else explained_share(candidate)
    if candidate is None or share is None:
        return Html("")
    heading = f"Largest tensors at the peak ({words.gib(share[0])} of {words.gib(share[1])} GiB)"
    rows = [(row[1], *row[2:5], row[0], chip(row[5])) for row in explain_rows(candidate)]
    heads = (*HEADER[1:5], HEADER[0], HEADER[5])
    return section(heading, table(heads, rows, text_columns=4, label="largest tensors"))


def command_section(document: PlanDocument) -> Html:
    """What runs the plan, and what made this page."""
    parts: list[Child] = []
    if document.best is not None and document.best.command is not None:
        words = "; ".join(("Run it", *before_launch(document, document.best)))
        parts += [tag("p", f"{words}:", class_="lead"), command_block(document.best.command)]
    parts += [tag("p", "Made by:", class_="lead"), command_block(document.command)]
    return section("Commands", *parts)


def command_block(command: str) -> Html:
    """A command as it is typed, in lines that can be copied."""
    lines = command_lines(one_line(command), _COMMAND_WIDTH)
    return tag(
        "pre", Html("\n".join(escaped(line) if not line.startswith("  ") else "  " + escaped(line) for line in lines))
    )
