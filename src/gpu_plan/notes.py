"""Notes for people: what a verb says on stderr beside its result."""

import sys

from gpu_plan.planner.visible import visible


def say(text: str) -> None:
    """One line."""
    print(visible(f"plan: note: {text}"), file=sys.stderr)
