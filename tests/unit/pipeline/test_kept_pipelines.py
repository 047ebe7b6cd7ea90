"""Ranks of judged pipelines: the last are kept, the oldest go."""

from gpu_plan.planner.search.training.piped.step import Kept, kept


def test_a_pipeline_is_made_once_as_long_as_it_is_kept() -> None:
    known: Kept = {}
    made: list[str] = []

    def asked(name: str) -> None:
        kept(known, name, lambda: made.append(name) or ())  # type: ignore[func-returns-value]

    for name in ("first", "second", "first", "third", "second", "first"):
        asked(name)
    assert made == ["first", "second", "third", "first"]
    assert len(known) == 2
