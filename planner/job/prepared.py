"""A request, read and checked, with all that searching and telling it takes; and who opens what it asks of models."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.training.given import Given
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.plan.document import Assumption
from gpu_plan.planner.search.search import Found
from gpu_plan.planner.search.task import AnyTask
from gpu_plan.planner.trace.provider import Provider

if TYPE_CHECKING:
    from gpu_plan.planner.capture.job import OpenCaptures
    from gpu_plan.planner.options.generation import InferGiven
    from gpu_plan.planner.trace.generation.generations import Generations

OpenProvider = Callable[[Request, Cluster, ModelSource, Given, Note], Provider]
"""Gives the traces of a model by name."""
OpenGenerations = Callable[[Request, Cluster, ModelSource, "InferGiven", Note], "Generations"]
"""Gives the generations of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Openers:
    """Who gives traces in place of new providers; None: new ones."""

    traces: OpenProvider | None = None
    generations: OpenGenerations | None = None
    captures: "OpenCaptures | None" = None
    """Of training scripts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One job, ready to be searched."""

    task: AnyTask
    spec: ModelSpec
    fixed: tuple[Assumption, ...]
    """What every plan of the task rests on."""
    assumptions: Callable[[], tuple[list[str], list[str]]]
    """What the traces used so far were told about values, and the notes made while tracing."""
    settings: tuple[Assumption, ...] = ()
    """What `--set` changes, told beside the figures."""
    headline: str | None = None
    """What has to be known before any figure is read."""
    warnings: Callable[[Found[Any]], tuple[str, ...]] = lambda found: ()
    replayed: bool = True
    """Whether candidates are replayed, and so can be drawn; a server is computed."""
    shorter: "Callable[[], Iterable[Prepared]]" = tuple
    """The same job with shorter samples, where its passes hold no padding: for where the longest leave no room."""
    places: Callable[[], Mapping[str, str]] = dict
    """Lines of the user's files at which memory is decided."""
