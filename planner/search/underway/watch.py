"""What a search tells while it runs, for whoever shows it. Pure."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_plan.planner.model.spec import ModelSpec
    from gpu_plan.planner.search.judgement import Judgement


class Watcher:
    """Told of each step of a job; does nothing with it unless a view overrides a method.

    In this order: `model`, `decided`, then `turns` and `judged` for each family, `advises` at the end.
    """

    def model(self, spec: "ModelSpec") -> None:
        """What is planned."""

    def decided(self, judged: "Sequence[Judgement]") -> None:
        """What model states alone decide, before any step is traced: one judgement a title, those that lose included.

        Empty where they tell nothing.
        """

    def turns(self, words: str, place: int, of: int) -> None:
        """Which family is looked at next, `place` of `of` counted from 0."""

    def judged(self, best: "Judgement | None", reason: str | None) -> None:
        """What became of it: its best candidate, or why none runs; neither where it makes no sense here."""

    def advises(self) -> None:
        """All families are judged; what else could be done is looked for."""
