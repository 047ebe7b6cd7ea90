"""Keys pressed in the explorer with its real planner processes, and when their pictures stood on the screen."""

import asyncio
import random
import statistics
import time
from dataclasses import dataclass, field
from typing import Literal, get_args

import psutil
from textual import events

from gpu_plan.tui.app import ExplorerApp
from gpu_plan.tui.session import Session
from gpu_plan.tui.state import State

KEYS = ("s", "S", "o", "c", "C", "m", "M", "i", "I", "z", "Z", "n", "N", "g", "G")
SIZE = (120, 40)
START = 300.0
"""Seconds that the first picture of all may take."""
PATIENCE = 20.0
"""Seconds that a key may take; then it is taken back, as one that is refused."""
LONGEST = 110.0
"""Seconds of a series: whatever hangs, the command ends."""

Kind = Literal["replayed", "ahead", "kept", "traced"]
"""`replayed`: evaluated after the key; `ahead`: evaluated before it, while nothing was asked; `kept`: of a state in
which the explorer has been before; `traced`: needs a new trace of the model."""


@dataclass(slots=True)
class Change:
    """One key: milliseconds until the first and until the exact picture of the new state was drawn."""

    kind: Kind
    first: float
    exact: float | None = None
    """None where the next key came before."""
    states_only: bool = False
    """Whether the first picture was of model states alone."""


@dataclass(slots=True)
class Series:
    """All keys of one series."""

    changes: list[Change] = field(default_factory=list)
    refused: int = 0
    application_seconds: float = 0.0
    """Processor time of the process with the screen."""
    replay_seconds: float = 0.0
    """And of the one that evaluates, what it works out ahead included."""

    @property
    def keys(self) -> int:
        return len(self.changes) + self.refused


class Clock:
    """Watches one application: when the state changed, and when pictures of it had been drawn."""

    def __init__(self, app: ExplorerApp) -> None:
        self._app, session = app, app.session
        self._tell, self._look, self._change = session._changed, session.look, session.change
        self._news = asyncio.Event()
        self.visited: set[str] = set()
        self.reset()
        session._changed = self._changed
        session.look = self._looked  # type: ignore[method-assign]
        session.change = self._pressed  # type: ignore[method-assign]

    @property
    def _session(self) -> Session:
        return self._app.session

    def reset(self) -> None:
        """Before the next key."""
        self.start = time.perf_counter()
        self.first: float | None = None
        self.exact: float | None = None
        self.pressed = self.traced = self.states_only = False
        self.kind: Kind | None = None

    async def until(self, name: str, limit: float) -> bool:
        """Waits without polling until `name` is known; False after `limit` seconds."""
        end = time.perf_counter() + limit
        while not getattr(self, name):
            self._news.clear()
            left = end - time.perf_counter()
            if left <= 0:
                return False
            try:
                await asyncio.wait_for(self._news.wait(), left)
            except TimeoutError:
                return False
        return True

    @property
    def refused(self) -> bool:
        return bool(self._session.problem)

    @property
    def answered(self) -> bool:
        """A picture of the state stands on the screen, or why there is none."""
        return self.first is not None or self.refused

    def _pressed(self, state: State) -> None:
        self._change(state)
        self.pressed = True
        self._news.set()

    def _looked(self) -> None:
        """The new state is known, nothing has been asked yet."""
        command = self._session.state.focus_command
        known = self._session._kept.get(command)
        self.kind = "replayed" if known is None else "kept" if command in self.visited else "ahead"
        self._look()

    def _changed(self) -> None:
        self._tell()
        session = self._session
        self.traced |= session.busy is not None and session.busy.words.startswith("tracing")
        if session.picture is not None and session.picture_of == session.state.focus_command:
            shown = session.picture
            self._app.call_after_refresh(self._drawn, session.picture_of, shown.exact, shown.states_only)
        self._news.set()

    def _drawn(self, command: str, exact: bool, states_only: bool) -> None:
        """The screen has been drawn with a picture of `command`."""
        if command != self._session.state.focus_command:
            return
        if self.first is None:
            self.first, self.states_only = time.perf_counter(), states_only
        if exact:
            self.exact = self.exact or time.perf_counter()
            self.visited.add(command)
        self._news.set()


async def idle(app: ExplorerApp) -> None:
    """Until everything that was asked for has come."""
    session, end = app.session, time.monotonic() + START
    while time.monotonic() < end:
        if session.busy is None and not session.searching and (session.current or session.problem):
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"nothing came of {session.state.focus_command}")


async def press(app: ExplorerApp, clock: Clock, key: str, pause: float) -> Change | None:
    """One key, and `pause` seconds from it until the next may come, which also waits for the first picture.

    None where the key changed nothing, or what it led to was refused.
    """
    state = app.session.state
    clock.reset()
    app.post_message(events.Key(key, key))
    await clock.until("pressed", PATIENCE)
    if app.session.state == state or not await clock.until("answered", PATIENCE):
        return None
    if pause:
        await asyncio.sleep(max(0.0, clock.start + pause - time.perf_counter()))
    if clock.first is None or clock.kind is None:
        return None
    kind: Kind = "traced" if clock.traced else clock.kind
    exact = None if clock.exact is None else 1000 * (clock.exact - clock.start)
    first = 1000 * (clock.first - clock.start)
    return Change(kind=kind, first=first, exact=exact, states_only=clock.states_only)


async def press_keys(model: str, gpus: str, *, changes: int, pause: float) -> Series:
    """`changes` changes of one model, the same keys whatever the pause; what the planner refuses is taken back."""
    app = ExplorerApp(State(model=model, gpus=gpus), environment={})
    dice, series = random.Random(6), Series()
    async with app.run_test(size=SIZE) as pilot:
        await asyncio.sleep(0.2)
        await idle(app)
        clock = Clock(app)
        worker = psutil.Process(app._processes[0].pid)
        replaying, showing = sum(worker.cpu_times()[:2]), time.process_time()
        end = time.monotonic() + LONGEST
        while series.keys < changes and time.monotonic() < end:
            state = app.session.state
            found = await press(app, clock, dice.choice(KEYS), pause)
            if found is not None:
                series.changes.append(found)
            elif app.session.state != state:
                series.refused += 1
                await pilot.press("backspace")
                await asyncio.sleep(0.1)
        series.replay_seconds = sum(worker.cpu_times()[:2]) - replaying
        series.application_seconds = time.process_time() - showing
    return series


def told(series: Series) -> dict[str, object]:
    """A series in figures."""
    kinds: dict[str, object] = {}
    new = [change for change in series.changes if change.kind in ("replayed", "ahead")]
    for name, chosen in (
        ("all_but_traced", [change for change in series.changes if change.kind != "traced"]),
        ("states_not_seen_before", new),
        *((kind, [change for change in series.changes if change.kind == kind]) for kind in get_args(Kind)),
    ):
        if chosen:
            kinds[name] = figures(chosen)
    return {
        "changes": kinds,
        "refused": series.refused,
        "application_cpu_ms_per_change": round(1000 * series.application_seconds / series.keys, 1),
        "replay_cpu_ms_per_change": round(1000 * series.replay_seconds / series.keys, 1),
    }


def figures(changes: list[Change]) -> dict[str, object]:
    """Milliseconds of the first picture, and of the exact one where it came before the next key."""
    exact = [change.exact for change in changes if change.exact is not None]
    result: dict[str, object] = {"changes": len(changes), "first_picture_ms": spread([c.first for c in changes])}
    if any(change.states_only for change in changes):
        result["first_of_model_states"] = sum(change.states_only for change in changes)
    return result | ({"exact_picture_ms": spread(exact), "exact_in_time": len(exact)} if exact else {})


def spread(values: list[float]) -> dict[str, float]:
    """Median and 95th percentile."""
    ordered = sorted(values)
    return {
        "median": round(statistics.median(ordered), 1),
        "p95": round(ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))], 1),
    }
