"""The report as GitHub-flavoured Markdown, for pull requests, issues and notebooks."""

from collections.abc import Iterable, Sequence

from gpu_plan.planner.plan.document import Candidate, MemoryFigures, PlanDocument
from gpu_plan.reports.clean import markdown, markdown_code, one_line
from gpu_plan.reports.durations import seconds
from gpu_plan.reports.plan import words
from gpu_plan.reports.plan.added.degree_words import DEGREE_HEADS, degree_rows
from gpu_plan.reports.plan.added.left_out_words import left_out_lines
from gpu_plan.reports.plan.added.rank_words import RANK_HEADS, alike_words, rank_rows
from gpu_plan.reports.plan.command import before_launch
from gpu_plan.reports.plan.explain import HEADER, explain_rows, explained_share
from gpu_plan.reports.plan.groups import group_rejected
from gpu_plan.reports.plan.stages import STAGE_HEADS, schedule_words, stage_rows


def render_markdown(document: PlanDocument, *, top: int = 5, explain: bool = False) -> str:
    """The report as Markdown that ends with a newline. `top` plans, and as many groups of losers, are shown."""
    blocks = [f"# Plan: {markdown(document.model.id)} on {markdown(str(document.cluster['spec']))}"]
    if document.headline is not None:
        blocks.append(f"**{markdown(document.headline)}**")
    blocks.append(
        _bullets(
            [
                f"**Model:** {_joined(words.model_words(document))}",
                f"**Cluster:** {_joined(words.cluster_words(document))}",
                f"**Job:** {_joined(words.workload_words(document))}",
            ]
        )
    )
    shown = words.focus(document)
    if shown is None:
        blocks.append("## OOM: no plan fits this cluster")
    else:
        blocks.extend(_candidate(shown, document, explain))
    if document.nearest_change is not None:
        blocks += ["## Nearest change that would fit", markdown(document.nearest_change)]
    if document.alternatives:
        rows = [(markdown(change), markdown(figures)) for change, figures in words.alternative_rows(document)]
        blocks += ["## What else you could do", _table(("change", "what it takes and gives"), rows)]
    untraced = words.untraced_words(document)
    if untraced is not None:
        blocks.append(markdown(untraced[0].upper() + untraced[1:]) + ".")
    if document.ranking is not None and document.ranking.why is not None:
        blocks += ["## Why", markdown(document.ranking.why)]
    if document.plans[1:top]:
        blocks += ["## Next best", _ranking(document.plans[1:top])]
    blocks.extend(_losers(document, max(1, top)))
    looked = words.search_words(document)
    if looked is not None:
        blocks.append(markdown(looked))
    if explain and document.search is not None and document.search.left_out:
        blocks += ["## Not traced", _bullets(map(markdown, left_out_lines(document.search.left_out)))]
    if explain and shown is not None:
        if shown.speed is not None and shown.speed.scaling is not None:
            blocks += ["## Scaling", markdown(shown.speed.scaling)]
        if degrees := degree_rows(shown):
            cells = [tuple(markdown(cell) for cell in row) for row in degrees]
            blocks += ["## What each degree costs", _table(DEGREE_HEADS, cells, frozenset({1, 2, 3, 4}))]
        blocks.extend(_explained(shown))
    if shown is not None and shown.command is not None and document.plans:
        blocks += ["## Run", *map(markdown, before_launch(document, shown)), _fenced(shown.command)]
    if document.warnings:
        blocks += ["## Warnings", _bullets(markdown(warning) for warning in document.warnings)]
    assumptions = words.ordered_assumptions(document)
    if assumptions:
        blocks += ["## Assumes", _bullets(f"{markdown(text)} ({basis})" for text, basis in assumptions)]
    blocks.append(f"Made with {markdown_code(document.command)} ({_versions(document)}).")
    return "\n\n".join(blocks) + "\n"


def _joined(pieces: Iterable[str]) -> str:
    return " · ".join(markdown(piece) for piece in pieces)


def _versions(document: PlanDocument) -> str:
    return ", ".join(f"{markdown(name)} {markdown(version)}" for name, version in document.created_with.items())


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], right: frozenset[int] = frozenset()) -> str:
    """Cells are escaped by the caller; the columns in `right` are aligned there."""
    rule = ["---:" if column in right else "---" for column in range(len(header))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *rows))


def _fenced(command: str) -> str:
    line = one_line(command)
    fence = "```"
    while fence in line:
        fence += "`"
    return f"{fence}bash\n{line}\n{fence}"


def _candidate(candidate: Candidate, document: PlanDocument, explain: bool) -> Iterable[str]:
    choice, memory = candidate.strategy, candidate.memory
    title = markdown(words.strategy_words(choice)) + words.place_words(document, choice)
    yield f"## {words.VERDICTS[candidate.verdict]}: {title}"
    lines = [_joined(words.shape_words(candidate))]
    if candidate.verdict == "tight":
        lines.append(words.tight_words(candidate))
    if not document.plans:
        lines.append(words.miss_words(document, candidate))
    if memory is not None:
        lines.append(_joined(words.memory_words(memory)))
        if host := words.host_words(document, memory, explain=explain):
            lines.append(_joined(host))
    if candidate.speed is not None and document.plans:
        lines.append(_joined(words.rate_words(candidate)))
    if schedule := schedule_words(candidate):
        lines.append(_joined(schedule))
    lines += [_joined(pieces) for pieces in words.extra_lines(candidate)]
    yield _bullets(lines)
    if memory is not None:
        yield _memory_table(memory)
    if candidate.stages:
        rows = [tuple(markdown(cell) for cell in row) for row in stage_rows(candidate)]
        yield _table(STAGE_HEADS, rows, frozenset({2, 3, 4, 5, 6}))
    if kinds := rank_rows(candidate):
        rows = [tuple(markdown(cell) for cell in row) for row in kinds]
        yield _table(RANK_HEADS, rows, frozenset({1, 2, 3, 4, 5}))
    elif explain and (alike := alike_words(candidate)):
        yield markdown(alike)


def _memory_table(memory: MemoryFigures) -> str:
    capacity = memory.capacity_bytes
    rows = [(label, size) for _, label, size in words.memory_rows(memory)]
    cells = [
        (markdown(label), markdown(words.part_gib(size, memory)), f"{size / capacity:.1%}") for label, size in rows
    ]
    used = memory.device_used_bytes
    cells.append(("**used**", f"**{words.gib(used)}**", f"**{used / capacity:.1%}**"))
    return _table(("memory per GPU", "GiB", "of capacity"), cells, frozenset({1, 2}))


def _ranking(plans: Sequence[Candidate]) -> str:
    second = words.second_column(plans, "checkpointing")
    shape = ("micro batch × accumulation" if second == "checkpointing" else "batch × replicas", second)
    header = ("plan", *shape, "GiB used", "GiB free", "step", "speed", "")
    return _table(header, [_ranking_row(plan) for plan in plans], frozenset({3, 4, 5, 6}))


def _ranking_row(plan: Candidate) -> list[str]:
    choice, memory, speed = plan.strategy, plan.memory, plan.speed
    return [
        markdown(words.strategy_words(choice)),
        *(markdown(cell.replace("×", " × ")) for cell in words.ranking_words(plan)),
        "" if memory is None else words.gib(memory.device_used_bytes),
        "" if memory is None else words.free_gib(memory),
        "" if speed is None else seconds(speed.step_seconds),
        "" if speed is None else words.throughput(speed),
        words.VERDICTS[plan.verdict],
    ]


def _losers(document: PlanDocument, limit: int) -> Iterable[str]:
    groups = group_rejected(document.rejected, document.plans)
    if not groups:
        return
    yield "## Does not fit"
    lines = [
        markdown(group.reason) + (f" ({markdown(group.aside)})" if group.aside else "") for group in groups[:limit]
    ]
    if len(groups) > limit:
        lines.append(f"{len(groups) - limit} more kinds with `--top {len(groups)}`")
    yield _bullets(lines)


def _explained(candidate: Candidate) -> Iterable[str]:
    rows, share = explain_rows(candidate), explained_share(candidate)
    if not rows or share is None:
        return
    yield f"## Largest tensors at the peak ({words.gib(share[0])} of {words.gib(share[1])} GiB)"
    cells = []
    for size, category, module, operator, tensors, basis in rows:
        named = [markdown_code(name, in_table=True) if name else "" for name in (module, operator, tensors)]
        cells.append([size, category, *named, basis])
    yield _table(HEADER, cells, frozenset({0}))
