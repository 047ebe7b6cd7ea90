"""The longest context and the largest batch, of a generation whose memory is a line: what is asked for them."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_plan.planner.search.generation.limits import limits
from gpu_plan.planner.strategy.generation.layout import Layout

GIB = 2**30


@dataclass
class Line:
    """Stands for an evaluator: weights and so much for each token of a sample."""

    per_token: int
    window: int = 2**40
    workload: Any = field(default_factory=lambda: SimpleNamespace(context=4096, batch=1, new_tokens=1, chunk=None))
    asked: list[tuple[int, int]] = field(default_factory=list)

    def judge(self, layout: Layout, *, context: int | None = None, batch: int | None = None) -> Any:
        context, batch = context or self.workload.context, batch or self.workload.batch
        if (context, batch) not in self.asked:
            self.asked.append((context, batch))
        kept = self.per_token * min(context, self.window) * batch
        high = 10 * GIB + kept
        return SimpleNamespace(
            layout=layout,
            context=context,
            batch=batch,
            verdict="fits" if high <= 80 * GIB else "no",
            high_bytes=high,
            weight_bytes=10 * GIB,
            kv_cache_bytes=kept // 4,
            capacity_bytes=80 * GIB,
            profile=SimpleNamespace(peak_allocated_bytes=high),
        )


def found(line: Line, positions: int | None) -> Any:
    layout = Layout(name="single", data_parallel=1)
    evaluator: Any = line
    return limits(evaluator, evaluator.judge(layout), positions)


def test_a_context_that_is_far_too_long_is_not_asked_for() -> None:
    line = Line(per_token=2**21)
    bound = found(line, 2**23)
    assert (bound.max_context, bound.bounds["max_context"]) == (35840, "memory")
    assert (bound.max_batch, bound.bounds["max_batch"]) == (8, "memory")
    assert max(context for context, _ in line.asked) < 40_000
    assert max(batch for _, batch in line.asked) < 16


def test_positions_that_fit_are_asked_for_at_once() -> None:
    line = Line(per_token=2**19)
    bound = found(line, 131072)
    assert (bound.max_context, bound.bounds["max_context"]) == (131072, "positions")
    assert [context for context, batch in line.asked if batch == 1] == [4096, 131072]


def test_a_window_that_keeps_no_more_is_found_behind_a_size_that_fits() -> None:
    line = Line(per_token=2**21, window=8192)
    bound = found(line, 2**23)
    assert (bound.max_context, bound.bounds["max_context"]) == (2**23, "positions")


def test_what_was_asked_for_is_the_most_where_a_step_more_does_not_fit() -> None:
    line = Line(per_token=70 * GIB // 4100)
    bound = found(line, 2**23)
    assert (bound.max_context, bound.max_batch) == (4096, 1)


@pytest.mark.parametrize("positions", [4096, 4100])
def test_no_longer_context_than_the_model_has_positions(positions: int) -> None:
    line = Line(per_token=2**10)
    bound = found(line, positions)
    assert (bound.max_context, bound.bounds["max_context"]) == (positions, "positions")
