"""The engines, by name: an explicit registry. A new one is one module in `kinds` and one line here."""

from collections.abc import Mapping
from importlib import import_module

from gpu_plan.executor.engines.engine import Engine, Places, Runs
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.nearest import did_you_mean

ENGINES: Mapping[str, str] = {
    "slurm": "gpu_plan.executor.engines.kinds.slurm",
    "ray": "gpu_plan.executor.engines.kinds.ray",
    "kubeflow": "gpu_plan.executor.engines.kinds.kubeflow",
    "skypilot": "gpu_plan.executor.engines.kinds.skypilot",
}
"""Module by name; each has a value `ENGINE`."""
_INSIDE: Mapping[str, str] = {"hosts": "gpu_plan.executor.engines.kinds.hosts"}
"""Those that no option names."""
ALIASES: Mapping[str, str] = {"kubernetes": "kubeflow", "k8s": "kubeflow", "sky": "skypilot"}
"""What people type for them."""


def find(name: str, option: str) -> Engine:
    """The engine called `name`. UsageError for an unknown one."""
    real = ALIASES.get(name.lower(), name.lower())
    if real in ENGINES:
        engine: Engine = import_module(ENGINES[real]).ENGINE
        return engine
    known = (*ENGINES, *ALIASES)
    raise UsageError(
        f"{option} {name!r} is not an engine: use {', '.join(ENGINES)}.{did_you_mean(name, known, limit=1)}"
    )


def find_running(name: str, option: str = "--on") -> Runs:
    """As `find`: a run can be given to each of them."""
    engine: Runs = find(name, option)  # type: ignore[assignment]
    return engine


def find_places(name: str) -> Places:
    """Who has the job of a run whose record names it."""
    if name in _INSIDE:
        inside: Places = import_module(_INSIDE[name]).ENGINE
        return inside
    return find_running(name)


def engine_of_setting(word: str) -> str | None:
    """The engine that a `--set` word is for: `slurm` of `slurm.partition=gpu`."""
    head, dot, _ = word.partition("=")[0].partition(".")
    return ALIASES.get(head.lower(), head.lower()) if dot and is_engine(head) else None


def is_engine(name: str) -> bool:
    """Whether `name` is that of an engine, by whatever name."""
    return name.lower() in (*ENGINES, *ALIASES)
