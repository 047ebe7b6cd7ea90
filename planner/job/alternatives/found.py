"""What was found beside a plan."""

from dataclasses import field

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.plan.document import Alternative
from gpu_plan.planner.search.judgement import Judgement

MOST = 3


@dataclass(slots=True, kw_only=True)
class Beside:
    """What was found."""

    found: list[Alternative] = field(default_factory=list)
    """At most `MOST`, the most useful first."""
    untraced: list[str] = field(default_factory=list)
    """Changes that would take a trace of their own."""
    same_without_host: Alternative | None = None
    """The most useful that trains the same without the node's RAM, which the plan keeps."""
    may_do_without: tuple[str, Judgement] | None = None
    """A change that trains the same, and its plan, which may fit without the node's RAM, where none surely does."""
    without_host: Alternative | None = None
    """Of a generation: what answers the same prompts without the node's RAM: another kernel, a server, fewer bits."""
    evaluated: int = 0
    """Candidates that were judged."""
