"""The explorer's frame: starts, draws, follows the terminal's size, and ends its processes with it.

The first screen needs nothing but Textual; everything else is imported once it is painted.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from textual.app import App, ComposeResult
from textual.driver import Driver
from textual.events import Resize
from textual.widgets import Static

if TYPE_CHECKING:
    from gpu_plan.tui.picture.scene import Scene
    from gpu_plan.tui.session import Session
    from gpu_plan.tui.state import State
    from gpu_plan.tui.widgets.plans import PlansTable

LEAST_WIDTH, LEAST_HEIGHT = 72, 20
_REST = 0.12
"""Seconds behind which a key is drawn, its table too."""
_QUIET = 4
"""Ticks behind which nobody waits."""


class Shell(App[int]):
    """What the explorer is without its keys."""

    CSS_PATH = "explorer.tcss"
    TITLE = "plan explore"
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012  as the base class has it
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall"), (50, "-huge")]  # noqa: RUF012

    def __init__(
        self,
        state: "State",
        *,
        ascii_only: bool = False,
        readonly: bool = False,
        engines: "Callable[[Session], Any] | None" = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        environment = os.environ if environment is None else environment
        self.ascii_only, self.readonly = ascii_only, readonly
        self._letters = ascii_only or bool(environment.get("NO_COLOR"))
        self._engines = engines
        self._first_state = state
        self._mounted = False
        self._pointed = ""
        self._possible: tuple[bool, ...] = ()
        self._quiet = 0
        """Ticks in which nothing changed."""
        self._resting: asyncio.TimerHandle | None = None
        self._processes: list[Any] = []

    def get_driver_class(self) -> type[Driver]:
        """Textual draws on stderr; where that goes elsewhere (`2>notes.txt`), on stdout, which is the terminal."""
        base = super().get_driver_class()
        if sys.__stderr__ is not None and sys.__stderr__.isatty():
            return base

        class OnStdout(base):  # type: ignore[misc, valid-type]
            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **options)
                self._file = sys.__stdout__

        return cast("type[Driver]", OnStdout)

    @property
    def failure(self) -> Exception | None:
        """What ended the application from within: for the command's last net, which says it in one line."""
        return self._exception

    def _print_error_renderables(self) -> None:
        """Not a screenful of traceback with every local value (textual/app.py: _fatal_error): see `failure`."""
        if self._exception is not None:
            self._exit_renderables.clear()
        super()._print_error_renderables()

    @cached_property
    def session(self) -> "Session":
        """What is known; made once it is asked for."""
        from gpu_plan.tui.session import Session

        return Session(self._first_state, self._changed, drawn=self.call_after_refresh)

    @property
    def plans(self) -> "PlansTable":
        """The table of plans."""
        from gpu_plan.tui.widgets.plans import PlansTable

        return self.screen_stack[0].query_one(PlansTable)

    def compose(self) -> ComposeResult:
        yield Static(
            f" {self._first_state.model[:200]}  on  {self._first_state.gpus[:40]}\n\n starting ...",
            id="first",
            markup=False,
        )

    def on_mount(self) -> None:
        self.call_after_refresh(self._furnish)

    async def _furnish(self) -> None:
        """The screen itself, and then the planner's processes."""
        from gpu_plan.tui.widgets.keys import Keys
        from gpu_plan.tui.widgets.main import Main

        screen = self.screen_stack[0]
        await screen.query_one("#first").remove()
        await screen.mount(Static(id="small"), Main(id="main"), Keys())
        self._mounted = True
        self.set_class(self.ascii_only, "-ascii")
        self.plans.focus()
        self._fit()
        self._show()
        self.set_interval(0.5, self._tick)
        self.call_after_refresh(self._start)

    async def _start(self) -> None:
        if self._engines is not None:
            self._processes = await self._engines(self.session)
            return
        from gpu_plan.tui.engine.client import PlannerProcess
        from gpu_plan.tui.pauses import without_pauses

        replay, search = (
            PlannerProcess(kind, self.session.on_reply, self.session.on_end) for kind in ("replay", "search")
        )
        self._processes = [replay, search]
        try:
            await replay.start()
            await search.start()
        except OSError as error:
            self.session.on_end("evaluation", f"cannot be started: {error.strerror or error}")
            return
        self.session.connect(replay, search)
        without_pauses()

    async def action_restart(self) -> None:
        """New planner processes, the same state."""
        await self._stop()
        await self._start()

    async def _stop(self) -> None:
        processes, self._processes = self._processes, []
        for process in processes:
            await process.stop()

    async def on_unmount(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
        await self._stop()

    def scene(self) -> "Scene":
        """This moment, for whoever draws it."""
        from gpu_plan.tui.picture.scene import Scene

        session = self.session
        busy = ""
        if session.busy is not None:
            seconds = int(session.seconds_busy)
            busy = session.busy.words + (f" {seconds} s" if seconds else "")
        return Scene(
            state=session.state,
            picture=session.picture,
            current=session.current,
            stale=session.stale,
            found=session.found,
            searching=session.searching,
            busy=busy,
            problem=session.problem,
            notice=session.notice,
            ascii_only=self.ascii_only,
            letters=self._letters,
            readonly=self.readonly,
            pinned=session.pinned,
            pointed=self._pointed,
        )

    def _changed(self) -> None:
        """Draws at once: a picture must follow its key."""
        self._quiet = 0
        if self._processes:
            if self._resting is not None:
                self._resting.cancel()
            self._resting = asyncio.get_running_loop().call_later(_REST, self._rest)
        if self.is_running:
            self._show()

    def _show(self) -> None:
        if not self._mounted:
            return
        from gpu_plan.tui.widgets.main import Main

        self.screen_stack[0].query_one(Main).show(self.scene())
        for top in self.screen_stack[1:]:
            tell = getattr(top, "tell", None)
            if tell is not None:
                tell(self.session)
        possible = self.possible()
        if possible != self._possible:
            self._possible = possible
            self.screen_stack[0].refresh_bindings()

    def possible(self) -> tuple[bool, ...]:
        """What the footer's keys can do; where it changes, the footer is drawn anew."""
        return ()

    def _rest(self) -> None:
        """Behind a key: Textual leaves a thousand values that hold each other."""
        from gpu_plan.tui.pauses import clear_up

        self._resting = None
        clear_up(young=True)

    def _tick(self) -> None:
        if self.session.busy is not None or self.session.stale:
            self._show()
        elif self._processes:
            self._quiet += 1
            if self._quiet == _QUIET:
                from gpu_plan.tui.pauses import clear_up

                clear_up()

    def on_resize(self, event: Resize) -> None:
        """Another size."""
        if self._mounted:
            self._fit(event.size.width, event.size.height)
            self.call_after_refresh(self._show)

    def _fit(self, width: int = 0, height: int = 0) -> None:
        """Says so where the terminal is too small."""
        width, height = width or self.size.width, height or self.size.height
        screen = self.screen_stack[0]
        screen.set_class(width < LEAST_WIDTH or height < LEAST_HEIGHT, "-small")
        screen.query_one("#small", Static).update(
            f"This terminal is {width} x {height}.\nThe explorer needs {LEAST_WIDTH} x {LEAST_HEIGHT}: enlarge it."
        )
