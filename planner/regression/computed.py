"""A plan document as what a baseline keeps. Reads source lines through `Sources`; otherwise pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.options.request import Answer
from gpu_plan.planner.plan.codec import plain
from gpu_plan.planner.plan.document import Candidate, PlanDocument
from gpu_plan.planner.regression.baseline import OTHERS, Baseline, Standing
from gpu_plan.planner.regression.places import Sources

EXPLAINED = 400
"""Kinds of tensors that the plan is asked for: more than the peak of any model has been seen to hold."""
_KEPT = 80
_LEAST_SHARE = 0.0005
_LEAST_WIDENED = 0.005
_OF_MODEL = ("id", "class_name", "model_type", "parameters", "trainable_parameters", "vocab_size", "revision")
_OF_CLUSTER = ("spec", "gpu", "gpus", "nodes", "gpus_per_node", "usable_bytes")
_DERIVED = ("global_batch_size", "world_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How a job stands on a cluster that a budget names."""

    verdict: str
    used_high_bytes: int
    capacity_bytes: int
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A job as it is now."""

    state: Baseline
    lines: Mapping[str, int] = field(default_factory=dict)
    """By key of `state.standing`: line of the file that its key names, now."""
    places: Mapping[str, str] = field(default_factory=dict)
    """By kind, as in `state.places`: `train.py:88`, relative to the root."""
    widened: Mapping[str, str] = field(default_factory=dict)
    """By key of `state.widened`: the place of that line."""
    config: Mapping[str, str] = field(default_factory=dict)
    """By key of the model's own config.json, as in `state.configuration`: `model/config.json:12`."""
    fits: Mapping[str, Fit] = field(default_factory=dict)
    """By cluster, as `--gpus` names it."""
    words: str = ""
    """The job in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnConfig:
    """A config.json of the project."""

    values: Mapping[str, object] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    """Of its keys: `model/config.json:12`."""


def computed(name: str, answer: Answer, sources: Sources, config: OwnConfig, *, code: bool) -> Computed:
    """`config`: the model's own where the project holds it; `code`: whether the project's code is the model.

    InputError where the configuration could not be evaluated, with the planner's reason.
    """
    document = answer.document
    candidate = candidate_of(document)
    memory = candidate.memory
    if memory is None:
        raise InputError(candidate.reason or "nothing could be evaluated")
    standing, lines = _standing(candidate, sources, memory.peak_allocated_bytes)
    places = {kind: place for kind, origin in answer.places.items() if (place := sources.place(origin)) is not None}
    widened, converting = _widened(answer, sources, memory.peak_allocated_bytes)
    return Computed(
        state=Baseline(
            job=name,
            configuration=_configuration(document, candidate, config.values, code),
            figures=dict(_figures(candidate)),
            phase_of_peak=memory.phase_of_peak,
            standing=standing,
            verdict=candidate.verdict,
            versions=dict(document.created_with),
            places={kind: sources.text(place) for kind, place in places.items()},
            widened=widened,
        ),
        lines=lines,
        places={kind: str(place) for kind, place in places.items()},
        widened=converting,
        config=dict(config.places),
        words=_words(document, candidate),
    )


def candidate_of(document: PlanDocument) -> Candidate:
    """The pinned configuration, fitting or not. InputError where there is none."""
    candidates = (*document.plans, *document.rejected)
    if not candidates:
        raise InputError("nothing could be evaluated: no configuration of these options is left")
    return next((candidate for candidate in candidates if candidate.memory is not None), candidates[0])


def fit_of(document: PlanDocument) -> Fit:
    """How a document's pinned configuration stands on its cluster."""
    candidate = candidate_of(document)
    memory = candidate.memory
    return Fit(
        verdict=candidate.verdict,
        used_high_bytes=0 if memory is None else memory.device_used_high_bytes,
        capacity_bytes=int(str(document.cluster["usable_bytes"])) if memory is None else memory.capacity_bytes,
        reason=candidate.reason,
    )


def _configuration(
    document: PlanDocument, candidate: Candidate, config: Mapping[str, object], code: bool
) -> dict[str, object]:
    model, cluster, workload = plain(document.model), document.cluster, document.workload
    found: dict[str, object] = {f"model.{key}": model.get(key) for key in _OF_MODEL}
    if not code:  # of code, every comment is another digest
        found["model.config_digest"] = document.model.config_digest
    found |= {f"config.{key}": value for key, value in flattened(config)}
    found |= {f"cluster.{key}": cluster[key] for key in _OF_CLUSTER if key in cluster}
    found |= {f"workload.{key}": value for key, value in flattened(workload) if not key.startswith("basis.")}
    found |= {f"strategy.{key}": value for key, value in plain(candidate.strategy).items() if key not in _DERIVED}
    return {key: value for key, value in found.items() if value is not None}


def flattened(value: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    """Dotted names and their values; empty mappings are left out."""
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from flattened(item, f"{before}{key}.")
        else:
            yield before + key, plain(item)


def _figures(candidate: Candidate) -> Iterator[tuple[str, int]]:
    memory, speed = candidate.memory, candidate.speed
    assert memory is not None
    yield from ((f"at_peak.{name}", size) for name, size in memory.at_peak.items().items() if size)
    yield "peak_allocated_bytes", memory.peak_allocated_bytes
    if memory.peak_reserved_bytes is not None:
        yield "peak_reserved_bytes", memory.peak_reserved_bytes
    yield "device_used_bytes", memory.device_used_bytes
    yield "at_rest_bytes", memory.at_rest_bytes
    yield from ((f"phase_peaks.{phase}", size) for phase, size in memory.phase_peaks.items())
    yield "num_alloc_retries", memory.num_alloc_retries
    if memory.nvme_bytes:
        yield "nvme_bytes", memory.nvme_bytes
    if memory.host is not None:
        for name in ("load_bytes", "step_bytes", "save_bytes", "most_bytes"):
            yield f"host.{name}", getattr(memory.host, name)
    if speed is not None:
        yield "step_microseconds", round(speed.step_seconds * 1e6)
        yield "recompute_microseconds", round(speed.parts.get("recompute", 0.0) * 1e6)


def _standing(candidate: Candidate, sources: Sources, peak: int) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes by key, and the line of the largest tensor behind each; what is small goes together."""
    totals: dict[str, int] = {}
    largest: dict[str, tuple[int, int]] = {}
    for tensor in candidate.explain or ():
        place = sources.place(tensor.origin)
        key = Standing(
            category=tensor.category,
            module=tensor.module,
            operator="" if tensor.category == "optimizer_state" else tensor.operator or "",
            file="" if place is None else place.file,
            text="" if place is None else sources.text(place),
        ).key()
        totals[key] = totals.get(key, 0) + tensor.bytes
        if place is not None and place.line is not None:
            largest[key] = max(largest.get(key, (0, 0)), (tensor.bytes, place.line))
    ordered = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    kept = {key: size for key, size in ordered[:_KEPT] if size >= peak * _LEAST_SHARE}
    rest = peak - sum(kept.values())
    return kept | ({OTHERS: rest} if rest > 0 else {}), {key: line for key, (_, line) in largest.items() if key in kept}


def _widened(answer: Answer, sources: Sources, peak: int) -> tuple[dict[str, int], dict[str, str]]:
    """Bytes that lines convert, by what they say, and where each stands; those that do little are left out."""
    sizes: dict[str, int] = {}
    places: dict[str, str] = {}
    for origin, size in answer.widened.items():
        place = sources.place(origin)
        if place is not None and size >= peak * _LEAST_WIDENED:
            text = sources.text(place)
            sizes[text] = sizes.get(text, 0) + size
            places[text] = str(place)
    return sizes, places


def _words(document: PlanDocument, candidate: Candidate) -> str:
    choice = candidate.strategy
    return (
        f"{document.model.id} on {document.cluster['spec']}: {choice.name}, micro batch {choice.micro_batch_size},"
        f" {choice.precision}"
    )
