"""CUDA graphs under capture: what a graph records is run once, as it is recorded; replaying it does nothing.

torch/cuda/graphs.py (2.13): CUDAGraph, graph, make_graphed_callables, graph_pool_handle.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from gpu_plan.planner.capture.answers.devices.stream import NoStream


class Graphs:
    """What a script does with graphs."""

    def __init__(self) -> None:
        self.recorded = 0
        """How many were recorded, or made of callables."""

    def answers(self) -> dict[str, Any]:
        """By their names in torch.cuda."""
        return {
            "CUDAGraph": NoStream,
            "graph": self._graph,
            "graph_pool_handle": lambda: (0, 0),
            "make_graphed_callables": self._callables,
            "is_current_stream_capturing": lambda: False,
        }

    def lines(self) -> tuple[str, ...]:
        """For people."""
        if not self.recorded:
            return ()
        return (
            "CUDA graphs are planned as the code that they record, run once: the pool that a graph keeps for its own"
            " tensors while it is not replayed is not counted",
        )

    @contextlib.contextmanager
    def _graph(self, *_: Any, **__: Any) -> Iterator[None]:
        self.recorded += 1
        yield

    def _callables(self, callables: Any, *_: Any, **__: Any) -> Any:
        self.recorded += 1
        return callables
