"""What every view of a search that runs does."""

from types import TracebackType

from gpu_plan.planner.search.underway.watch import Watcher


class View(Watcher):
    """Shows nothing. Used as a context manager: what is shown is wiped, or ended, when it is left."""

    def __enter__(self) -> "View":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def tracing(self, text: str) -> None:
        """Something slow begins: torch is imported, a script is executed."""
