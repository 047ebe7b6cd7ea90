"""The acts of one section of a script, [acts] each, and the events of the stream that they become."""

import numpy as np

from gpu_plan.planner.memory.stream.moments import Point
from gpu_plan.planner.plain.among import among
from gpu_plan.planner.strategy.zero.stage3.hooks.script import Script
from gpu_plan.planner.trace.events import IntArray

_TURNS = 8
"""More than the events of one act."""


class Section:
    """What its acts do, in columns; a rank has thousands, which are placed together."""

    def __init__(self, script: Script, span: range, at: Point | None) -> None:
        """Those acts of a script; all of them at one moment where `at` says so."""
        acts = slice(span.start, span.stop)
        self.at, self.number = script.at[acts] if at is None else np.full(len(span), at), script.number[acts]
        self.does, self.more = script.columns[acts, 1], script.columns[acts, 3]
        self._acts: list[IntArray] = []
        self._turns: list[IntArray] = []
        self._what: list[IntArray] = []

    def of(self, *kinds: int) -> IntArray:
        """Which acts these are."""
        return np.flatnonzero(among(self.does, kinds))

    def place(self, acts: IntArray, turn: int, what: IntArray) -> None:
        """An event of each of these acts, before those of its later turns; `what` as in `Placed`."""
        self._acts.append(acts)
        self._turns.append(acts * _TURNS + turn)
        self._what.append(what)

    def events(self) -> tuple[IntArray, IntArray]:
        """The act of every event, and what it is, in their order."""
        order = np.argsort(np.concatenate(self._turns), kind="stable")
        return np.concatenate(self._acts)[order], np.concatenate(self._what)[order]
