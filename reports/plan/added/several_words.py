"""A job that a document describes, in words, the same in every report. Nothing here knows a format."""

from gpu_plan.planner.plan.document import Candidate
from gpu_plan.planner.plan.recipe import PhasePeak, PlacedModel, SeveralFigures
from gpu_plan.planner.units import GIB, format_count, format_gib
from gpu_plan.reports.durations import seconds

_BETWEEN = {
    "device": "{} GiB of the device between its phases",
    "weights": "{} GiB of weights on the device between its phases, the rest on the host",
    "gradients": "{} GiB of weights and gradients on the device between its phases, the rest on the host",
    "optimizer": "{} GiB of what its optimizer keeps on the device between its phases, the rest on the host",
    "host": "{} GiB on the host between its phases",
    "server": "on GPUs of its own",
}


def lines(candidate: Candidate) -> list[list[str]]:
    """What a job of several models adds to a candidate: its phases, each with what every model has of it; models."""
    figures = candidate.several
    if figures is None:
        return []
    phases = [[phase_words(phase)] for phase in figures.phases]
    return [about(figures), *phases, *([model_words(one)] for one in figures.models)]


def about(figures: SeveralFigures) -> list[str]:
    """The job's name, how much there is of it, and what decides."""
    models = "1 model" if len(figures.models) == 1 else f"{len(figures.models)} models"
    counted = f"{models}, {len(figures.phases)} phases"
    return [f"{figures.job}: {counted}", f"{figures.worst_phase} decides", *_whole(figures)]


def _whole(figures: SeveralFigures) -> list[str]:
    """`all phases 4.1 s (3.9 s to 5.0 s), rollout longest`."""
    if figures.seconds is None or figures.seconds_low is None or figures.seconds_high is None:
        return []
    low, high = seconds(figures.seconds_low), seconds(figures.seconds_high)
    least = "at least " if any(phase.at_least for phase in figures.phases) else ""
    return [f"all phases {least}{seconds(figures.seconds)} ({low} to {high})", f"{figures.longest_phase} longest"]


def _lasts(phase: PhasePeak) -> str:
    if phase.seconds is None or phase.seconds_low is None or phase.seconds_high is None:
        return ""
    low, high = seconds(phase.seconds_low), seconds(phase.seconds_high)
    moved = f", moves {seconds(phase.moving_seconds)}" if phase.moving_seconds else ""
    return f"; {'at least ' if phase.at_least else ''}{seconds(phase.seconds)} ({low} to {high}{moved})"


def phase_words(phase: PhasePeak) -> str:
    """`update: 9.9 GiB at its peak: policy 5.8, reference 0.9, critic 3.2`."""
    shares = ", ".join(f"{share.role} {_gib(share.bytes)}" for share in phase.by_model if share.bytes)
    often = "" if phase.repeats == "every step" else f", {phase.repeats}"
    who = f"{phase.does} {', '.join(phase.roles)}{often}"
    return f"{phase.name} ({who}): {_gib(phase.peak_bytes)} GiB at its peak: {shares}{_lasts(phase)}"


def model_words(one: PlacedModel) -> str:
    """`reference: Qwen/Qwen2.5-0.5B, 494M frozen, bfloat16, whole on each device: 0.9 GiB on the host ...`."""
    trained = "trained" if one.trained else "frozen"
    place = _BETWEEN[one.between].format(_gib(one.rest_bytes))
    return (
        f"{one.role}: {one.model}, {format_count(one.parameters)} {trained}, {one.dtype}, {one.spread}: {place},"
        f" {_gib(one.at_peak_bytes)} at the peak"
    )


def _gib(num_bytes: int) -> str:
    return format_gib(num_bytes, 1 if num_bytes == 0 or num_bytes >= GIB // 10 else 4)
