"""Evaluators of sentence-transformers: what they score before the first step changes nothing of what is trained.

They rank by the values of embeddings, which a capture has not.
"""

from typing import Any

from gpu_plan.planner.capture.imports import when_imported

_HOMES = ("sentence_transformers.base.evaluation.evaluator", "sentence_transformers.evaluation.SentenceEvaluator")
"""Where the class that all evaluators derive from is, in version 6 and in those before 5.3."""


class Scores(dict[str, float]):
    """0.0 for every score that is asked for."""

    def __missing__(self, name: str) -> float:
        return 0.0


class Evaluators:
    """Counts the evaluations that were left out."""

    def __init__(self) -> None:
        self.left_out = 0

    def watch(self) -> None:
        """For the rest of the process, where sentence-transformers is imported."""
        for home in _HOMES:
            when_imported(home, self._take)

    def _take(self, module: Any) -> None:
        for name in ("BaseEvaluator", "SentenceEvaluator"):
            kind = getattr(module, name, None)
            if kind is not None:
                kind.__init_subclass__ = classmethod(self._left_out)

    def _left_out(self, kind: Any, /, **_: Any) -> None:
        """A class of evaluators is made: calling one gives scores of 0.0."""
        if "__call__" in vars(kind):

            def call(evaluator: Any, *_: Any, **__: Any) -> Scores:
                self.left_out += 1
                main = getattr(evaluator, "primary_metric", None)
                return Scores({main: 0.0}) if main else Scores()

            kind.__call__ = call
