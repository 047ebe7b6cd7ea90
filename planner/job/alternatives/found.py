"""What was found beside a plan."""

from dataclasses import dataclass, field

from gpu_plan.planner.plan.document import Alternative

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
    without_host: Alternative | None = None
    """Of a generation: what answers the same prompts without the node's RAM: another kernel, a server, fewer bits."""
    evaluated: int = 0
    """Candidates that were judged."""
