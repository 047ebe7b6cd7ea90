"""Which inputs of a job are not what they were: its configuration, its model, the versions. Pure."""

from collections.abc import Iterator, Mapping

from gpu_plan.planner.regression.baseline import Baseline
from gpu_plan.planner.regression.causes.hints import CHECKPOINTING, OPTIMIZER, VOCABULARY
from gpu_plan.planner.regression.computed import Computed
from gpu_plan.planner.regression.jobs import CheckJob
from gpu_plan.planner.regression.places import Place, place_of
from gpu_plan.planner.regression.result import Finding

_FOLLOWS = ("strategy.data_parallel", "strategy.precision", "model.config_digest", "cluster.gpu", "cluster.gpus")
"""Said already by what they follow from."""
_LONGEST = 48


def changed_inputs(job: CheckJob, before: Baseline, now: Computed) -> Iterator[Finding]:
    """One notice for each value that changed, then for each version."""
    told: set[str] = set()
    was, is_now = before.configuration, now.state.configuration
    for key in dict.fromkeys((*was, *is_now)):
        if was.get(key) == is_now.get(key) or key in _FOLLOWS:
            continue
        name = key.partition(".")[2]
        words = f"{_shown(was.get(key))} -> {_shown(is_now.get(key))}"
        if f"{_ALIKE.get(name, name)} {words}" in told:
            continue
        told.add(f"{_ALIKE.get(name, name)} {words}")
        place = _place(job, now, key)
        yield Finding(
            level="notice",
            kind="input",
            message=f"{key.replace('_', ' ')}: {words}",
            file=None if place is None else place.file,
            line=None if place is None else place.line,
        )
    yield from _versions(before.versions, now.state.versions)
    if before.phase_of_peak != now.state.phase_of_peak:
        said = f"the peak is in {now.state.phase_of_peak}, it was in {before.phase_of_peak}"
        yield Finding(level="notice", kind="information", message=said)


def _versions(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Finding]:
    for package in dict.fromkeys((*before, *now)):
        was, is_now = before.get(package), now.get(package)
        if was != is_now:
            words = f"version of {package}: {_shown(was)} -> {_shown(is_now)}"
            yield Finding(level="notice", kind="input", message=words)


def _place(job: CheckJob, now: Computed, key: str) -> Place | None:
    """The line that gives a value: of the job's table, of the model's config.json, or of the script."""
    section, _, name = key.partition(".")
    if section == "config":
        place = now.config.get(name.partition(".")[0])
        return None if place is None else place_of(place)
    option = "set" if name.startswith("settings.") else _OPTION.get(name, name).replace("_", "-")
    if option in job.lines:
        return Place(file=job.path.name, line=job.lines[option])
    place = now.places.get(_NOTICED.get(name, ""))
    return None if place is None else place_of(place)


_ALIKE = {"micro_batch_size": "micro_batch", "gradient_accumulation_steps": "grad_accum"}
_OPTION = {"spec": "gpus", "id": "model", **_ALIKE}
_NOTICED = {"optimizer": OPTIMIZER, "checkpointing": CHECKPOINTING, "vocab_size": VOCABULARY}


def _shown(value: object) -> str:
    text = "absent" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
