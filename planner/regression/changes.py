"""Which inputs of a job are not what they were: its configuration, its model, the versions. Pure."""

from collections.abc import Iterator, Mapping

from planner.regression.baseline import Baseline
from planner.regression.jobs import CheckJob
from planner.regression.result import Finding

_FOLLOWS = ("strategy.data_parallel", "strategy.precision")
"""Said already by what they follow from."""
_LONGEST = 48


def changed_inputs(job: CheckJob, before: Baseline, now: Baseline) -> Iterator[Finding]:
    """One notice for each value that changed, then for each version."""
    told: set[str] = set()
    for key in dict.fromkeys((*before.configuration, *now.configuration)):
        was, is_now = before.configuration.get(key), now.configuration.get(key)
        if was == is_now or key in _FOLLOWS:
            continue
        name = key.partition(".")[2]
        words = f"{_shown(was)} -> {_shown(is_now)}"
        if f"{_ALIKE.get(name, name)} {words}" in told:
            continue
        told.add(f"{_ALIKE.get(name, name)} {words}")
        file, line = _place(job, name)
        yield Finding(level="notice", kind="input", message=f"{key.replace('_', ' ')}: {words}", file=file, line=line)
    yield from _versions(before.versions, now.versions)
    if before.phase_of_peak != now.phase_of_peak:
        said = f"the peak lies in {now.phase_of_peak}, was in {before.phase_of_peak}"
        yield Finding(level="notice", kind="information", message=said)


def _versions(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Finding]:
    for package in dict.fromkeys((*before, *now)):
        was, is_now = before.get(package), now.get(package)
        if was != is_now:
            words = f"version of {package}: {_shown(was)} -> {_shown(is_now)}"
            yield Finding(level="notice", kind="input", message=words)


def _place(job: CheckJob, name: str) -> tuple[str | None, int | None]:
    """The line of the configuration that gives a value, where one does."""
    key = _OPTION.get(name, name).replace("_", "-")
    if name.startswith("settings."):
        key = "set"
    if key in job.lines:
        return job.path.name, job.lines[key]
    return None, None


_ALIKE = {"micro_batch_size": "micro_batch", "gradient_accumulation_steps": "grad_accum"}
_OPTION = {"spec": "gpus", "id": "model", **_ALIKE}


def _shown(value: object) -> str:
    text = "absent" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
