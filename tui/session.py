"""What the explorer knows at a moment, and how it learns more: joins the state with the planner processes.

Knows no screen: whoever shows it is told through one callback that something changed.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from gpu_plan.planner.options.request import Request
from gpu_plan.planner.plan.document import PlanDocument, TensorLine
from gpu_plan.reports.plan.words import focus
from gpu_plan.tui.ahead import Move, neighbours
from gpu_plan.tui.engine.messages import Ahead, AnyParcel, Ask, Kind, Picture, Reply
from gpu_plan.tui.picture.scene import Scene
from gpu_plan.tui.state import State

if TYPE_CHECKING:
    from gpu_plan.planner.plan.drawn.lanes import Lane

_KEPT = 256
_LIKELY = 8
"""Neighbouring states whose exact picture is made ahead; the others are only summed."""
_UNDONE = 200
_A_WHILE = 0.3
"""Seconds behind which a picture of an earlier state is marked as such: drawn so, and back again, it would flicker with
each key."""
_OF_PICTURE: tuple[Kind, ...] = ("picture", "tensors", "lanes")
"""What is asked of one state alone."""


class Channel(Protocol):
    """Where asks go: a planner process."""

    def send(self, message: object) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """What is going on in the background, and since when."""

    words: str
    since: float


class Session:
    """State, pictures and the table of plans."""

    def __init__(
        self,
        state: State,
        changed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        drawn: Callable[[Callable[[], None]], object] = lambda then: then(),
    ) -> None:
        """`drawn`: does something once what changed is drawn."""
        self.state = state
        self.picture: Picture | None = None
        self.picture_of: str = ""
        """The command line whose figures the picture shows."""
        self.found: PlanDocument | None = None
        self.found_of: str = ""
        self.problem: str = ""
        """Why there is no picture of this state; empty where there is one."""
        self.busy: Busy | None = None
        self.tensors: tuple[TensorLine, ...] | None = None
        self.lanes: tuple[Lane, ...] | None = None
        """The step of the picture, stream by stream; this and the tensors only once they were asked for."""
        self.pinned: PlanDocument | None = None
        """The configuration that others are compared with."""
        self._changed, self._clock, self._drawn = changed, clock, drawn
        self._since, self._tracing = clock(), False
        """When the state became what it is, and whether its picture needs a trace."""
        self._replay: Channel | None = None
        self._search: Channel | None = None
        self._number = 0
        self._asked: dict[Kind, int] = {}
        self._kept: OrderedDict[str, Picture] = OrderedDict()
        self._past: list[State] = []
        self._delivered = ""
        self._sought = ""
        self._ended = ""
        """What is to be said of the process that replays, once it is gone: it answers nothing any more."""
        self.notice = ""
        """The same of the process that searches: pictures still come."""
        self._wanted: set[Kind] = set()
        """What is to be asked of the picture once it is exact."""
        self._next: dict[State, Move] = {}
        self._last: Move | None = None
        self._waiting: dict[int, Callable[[Reply], None]] = {}

    def connect(self, replay: Channel, search: Channel) -> None:
        """Begins to ask: first of all for what is in view."""
        self._ended = self.notice = ""
        self._replay, self._search = replay, search
        self._delivered = self._sought = ""
        self.look()

    @property
    def current(self) -> bool:
        """Whether the picture is of this very state, and exact."""
        return self.picture is not None and self.picture.exact and self.picture_of == self.state.focus_command

    @property
    def stale(self) -> bool:
        """Whether the picture is of an earlier state, and has been or will be for a while."""
        left = self.picture is not None and self.picture_of != self.state.focus_command
        return left and (bool(self.problem) or self._tracing or self._clock() - self._since > _A_WHILE)

    @property
    def searching(self) -> bool:
        """Whether the table of plans is of an earlier state."""
        return self.found_of != self.state.command

    def change(self, state: State) -> None:
        """Another state; the one before can be had back."""
        if state == self.state:
            return
        self._past = [*self._past[-_UNDONE:], self.state]
        self._last = self._next.get(state)
        self.state = state
        self.look()

    def undo(self) -> bool:
        """The state before; False where there is none."""
        if not self._past:
            return False
        self.state = self._past.pop()
        self.look()
        return True

    def look(self) -> None:
        """Shows what is known of the state, and asks for the rest."""
        self.problem, self.tensors, self.lanes = "", None, None
        self._since, self._tracing = self._clock(), False
        self._wanted.clear()
        for kind in _OF_PICTURE:
            self._asked.pop(kind, None)  # What is still on its way is of another state.
        command = self.state.focus_command
        kept = self._kept.get(command)
        if kept is not None:
            self._kept.move_to_end(command)
            self.picture, self.picture_of, self.busy = kept, command, None
        if (kept is not None and kept.exact) or (self.state.following and not self.state.focus):
            self._seek()
        else:
            self._ask("picture", self._replay)
        if self._ended:
            self.problem, self.busy = self._ended, None
        self._changed()
        if self.current:
            self._drawn(self._look_ahead)

    @property
    def seconds_busy(self) -> float:
        """How long what is going on has been going on."""
        return 0.0 if self.busy is None else self._clock() - self.busy.since

    def ask_tensors(self) -> None:
        """Asks for all tensors at the peak of the picture."""
        if self.tensors is None:
            self._ask_behind("tensors")

    def ask_lanes(self) -> None:
        """Asks for the step of the picture, stream by stream."""
        if self.lanes is None:
            self._ask_behind("lanes")

    def _ask_behind(self, kind: Kind) -> None:
        """Now, or as soon as the picture is exact."""
        if self.current:
            self._ask(kind, self._replay)
        else:
            self._wanted.add(kind)

    def ask_document(self, then: Callable[[Reply], None], timeline: bool = False) -> None:
        """The whole answer of the main job for the configuration in the picture, as the command line would give it.

        `timeline`: with the step event by event, where the device has a caching allocator.
        """
        asked = replace(self.state.focus_request, timeline=timeline)
        self._waiting[self._ask("document", self._search, asked)] = then
        self._begin("evaluating")

    def ask_otherwise(self, then: Callable[[Reply], None]) -> None:
        """The answer with what else could be done: beside the search's best plan, or in place of the configuration in
        the picture where that does not fit."""
        shown = self.picture.document if self.current and self.picture is not None else None
        lost = shown is not None and shown.best is None and not self.state.following
        asked = replace(self.state.focus_request if lost else self.state.search_request, advise=True)
        self._waiting[self._ask("document", self._search, asked)] = then
        self._begin("evaluating what else could be done")

    @property
    def pinning(self) -> bool:
        """Whether there is nothing to compare the picture with: nothing is pinned, or this very configuration."""
        return self.pinned is None or self.pinned.command == self.state.focus_command

    def pin(self) -> None:
        """Remembers the configuration in the picture, to compare others with; the same one again: none."""
        shown = self.picture.document if self.picture is not None and self.picture.exact else None
        self.pinned = None if shown is not None and self.pinned == shown else shown
        self._changed()

    def on_reply(self, reply: Reply) -> None:
        """Takes what a planner process says."""
        if reply.kind == "ahead":
            if reply.picture is not None:
                self._keep(reply.of, reply.picture)
            return  # Nothing that is in view.
        waiting = self._waiting.get(reply.number)
        if waiting is not None and reply.kind != "progress":
            del self._waiting[reply.number]
            self.busy = None
            waiting(reply)
        elif waiting is None and reply.number not in self._asked.values():
            return  # Of a state that has been left.
        else:
            self._take(reply)
        self._changed()
        if reply.kind == "picture" and self.current:
            self._drawn(self._look_ahead)

    def on_end(self, kind: str, how: str) -> None:
        """A planner process is gone: without `replay` there are no pictures, without `search` no table and no trace."""
        self.busy = None
        words = f"the planner's {kind} process {how}. Press F5 to start it again."
        if kind == "search":
            self.notice = words
            waiting, self._waiting = self._waiting, {}
            for number, then in waiting.items():
                then(Reply(number=number, kind="broken", text=words))
        else:
            self.problem = self._ended = words
        self._changed()

    def _take(self, reply: Reply) -> None:
        match reply.kind:
            case "picture":
                self._take_picture(reply)
            case "tensors":
                self.tensors = reply.tensors
            case "lanes":
                self.lanes = reply.lanes
            case "untraced":
                self._trace()
            case "traced" if reply.parcel is not None:
                self._deliver(reply.parcel)
            case "found" if reply.document is not None:
                self._take_found(reply.document)
            case "progress":
                self._begin(reply.text)
            case "refused" | "broken":
                self._take_refusal(reply)

    def _take_picture(self, reply: Reply) -> None:
        assert reply.picture is not None
        self.problem = self._ended
        self.picture, self.picture_of = reply.picture, self.state.focus_command
        self._keep(self.picture_of, reply.picture)
        if reply.picture.exact:
            self.busy = None
            for kind in self._wanted:
                self._ask(kind, self._replay)
            self._wanted.clear()
            self._seek()

    def _keep(self, command: str, picture: Picture) -> None:
        """Pictures of the states seen last, and of those that may come next."""
        before = self._kept.pop(command, None)
        self._kept[command] = before if before is not None and before.exact else picture
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def _look_ahead(self) -> None:
        """Has the planner use the time until the next key: all states one key away, the likeliest to the end."""
        if not self.current:
            return  # Another key came first.
        scene = Scene(state=self.state, picture=self.picture, found=self.found)
        self._next = neighbours(self.state, scene.value, self._last)
        kept = {state: self._kept.get(state.focus_command) for state in self._next}
        rough = tuple(state.focus_request for state, picture in kept.items() if picture is None)
        likely = list(kept.items())[:_LIKELY]
        exact = tuple(state.focus_request for state, picture in likely if picture is None or not picture.exact)
        if self._replay is not None:
            self._number += 1
            wanted = self._asked.get("picture", 0)
            # Where model states came first, a layout was waited for.
            long = (state.focus_request for state, picture in kept.items() if picture is None or picture.states_only)
            ahead = Ahead(number=self._number, wanted=wanted, rough=rough, exact=exact, prepared=tuple(long))
            self._replay.send(ahead)

    def _trace(self) -> None:
        if self.notice:
            self.problem, self.busy = f"it needs a trace: {self.notice}", None
            return
        if self._delivered == self.state.focus_command:
            self.problem = "what was traced is not what is replayed: were files changed meanwhile? Press F5."
            return
        self._sought = ""  # A search that is running makes way for the trace.
        self._ask("trace", self._search)
        self._begin("tracing")
        self._tracing = True

    def _deliver(self, parcel: AnyParcel) -> None:
        self._delivered = self.state.focus_command
        if self._replay is not None:
            self._replay.send(parcel)
        self.busy = None
        self._ask("picture", self._replay)

    def _take_found(self, document: PlanDocument) -> None:
        self.busy = None
        self.found, self.found_of = document, self.state.command
        shown = focus(document)
        if self.state.following and shown is not None:
            followed = self.state.following_best(shown.strategy)
            moved = followed != self.state or not self.current
            self.state = followed
            if moved:
                self._delivered = ""
                self._since, self._tracing = self._clock(), False
                self._ask("picture", self._replay)

    def _take_refusal(self, reply: Reply) -> None:
        self.busy = None
        self.problem = reply.text if reply.kind == "refused" else f"the planner failed: {reply.text}"
        if reply.number in (self._asked.get("picture"), self._asked.get("trace")):
            self._seek()

    def _seek(self) -> None:
        """The table of plans, where it is not being made already."""
        if self.notice or self.state.command in (self._sought, self.found_of):
            return
        self._sought = self.state.command
        self._ask("search", self._search)
        self._begin("searching")

    def _ask(self, kind: Kind, where: Channel | None, asked: Request | None = None) -> int:
        """`asked`: another request than that of the search or of the picture."""
        self._number += 1
        self._asked[kind] = self._number
        request = self.state.search_request if kind == "search" else self.state.focus_request
        if where is not None:
            where.send(Ask(number=self._number, kind=kind, request=asked or request))
        return self._number

    def _begin(self, words: str) -> None:
        since = self.busy.since if self.busy is not None and self.busy.words == words else self._clock()
        self.busy = Busy(words=words, since=since)
