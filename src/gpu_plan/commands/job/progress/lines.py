"""A search that runs, as plain lines: for files, pipes and logs."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpu_plan.commands.job.progress.view import View
from gpu_plan.commands.job.progress.words import Pace, model_words, plan_words, states_words

if TYPE_CHECKING:
    from gpu_plan.planner.model.spec import ModelSpec
    from gpu_plan.planner.search.judgement import Judgement


class LinesView(View):
    """Nothing is said until something slow begins: a kept plan and a shipped trace are not waited for.

    Nor before it is known what is planned: what makes no sense gets one line, its error.
    """

    def __init__(self, *, write: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._write, self._pace = write, Pace(clock)
        self._slow = self._known = False
        self._held: list[Callable[[], Sequence[str]]] = []
        self._place = 0

    def tracing(self, text: str) -> None:
        """What model states decided, then what is done."""
        self._slow = True
        self._held.append(lambda: (f"{text} ...",))
        self._flush()

    def model(self, spec: "ModelSpec") -> None:
        """Its parameters."""
        self._held.append(lambda: (model_words(spec),))

    def decided(self, judged: "Sequence[Judgement]") -> None:
        """What cannot fit, and what leaves room."""
        self._known = True
        self._held.append(lambda: states_words(judged))  # made where it is said
        self._flush()

    def turns(self, words: str, place: int, of: int) -> None:
        """Counted alone: what a kind came to is told when it is known."""
        self._place, self._pace.of = place, of

    def judged(self, best: "Judgement | None", reason: str | None) -> None:
        """A line for each kind that was evaluated."""
        if self._slow and (best is not None or reason is not None):
            self._pace.judged(self._place)
            found = f"does not fit: {reason}" if best is None else plan_words(best)
            self._write(f"{self._pace.words}: {found}")

    def advises(self) -> None:
        """The last line before the report."""
        if self._slow:
            self._pace.done = self._pace.of
            self._write(f"{self._pace.words}; what else could be done ...")

    def _flush(self) -> None:
        if self._slow and self._known:
            for held in self._held:
                for line in held():
                    self._write(line)
            self._held = []
