"""The explorer: a Textual application around one session.

The first screen needs nothing but Textual; everything else is imported once it is painted.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Footer, Input, Static

from tui.choices import CHOICES, GPUS, STEPPED

if TYPE_CHECKING:
    from tui.scene import Scene
    from tui.screens.form import Applied
    from tui.screens.launch import Launch
    from tui.screens.runs import Watch
    from tui.session import Session
    from tui.state import State
    from tui.widgets.plans import PlansTable

LEAST_WIDTH, LEAST_HEIGHT = 72, 20


def _steps() -> list[BindingType]:
    """A key for each option: lower case moves on, upper case moves back."""
    found: list[BindingType] = []
    for name in STEPPED:
        choice = CHOICES[name]
        found.append(Binding(choice.key, f"step('{name}')", choice.label, show=False, tooltip=choice.help))
        found.append(Binding(choice.key.upper(), f"step('{name}', False)", choice.label, show=False))
    return found


class ExplorerApp(App[int]):
    """`plan explore`."""

    CSS_PATH = "explorer.tcss"
    TITLE = "plan explore"
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012  as the base class has it
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall"), (50, "-huge")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "form", "Edit", tooltip="every option in a form"),
        Binding("b", "best", "Best", tooltip="follow the best plan"),
        Binding("d", "drill", "Why", tooltip="what stands at the peak"),
        Binding("v", "pin", "Compare", tooltip="remember this one, then see every difference"),
        Binding("x", "leave", "Export", tooltip="copy, save, report"),
        Binding("question_mark,f1", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("g", "step_gpu_kind(True)", "next GPU", show=False),
        Binding("G", "step_gpu_kind(False)", "previous GPU", show=False),
        Binding("n", "step_gpus(True)", "twice the GPUs", show=False),
        Binding("N", "step_gpus(False)", "half the GPUs", show=False),
        Binding("backspace", "undo", "undo", show=False),
        Binding("slash", "filter", "filter plans", show=False),
        Binding("t", "sort", "sort plans", show=False),
        Binding("h", "losers", "hide losers", show=False),
        Binding("y", "copy", "copy the command", show=False),
        Binding("w", "runs", "runs", show=False),
        Binding("ctrl+r", "launch", "launch", show=False),
        Binding("f5", "restart", "restart the planner", show=False),
        *_steps(),
    ]

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
        self._furnished = False
        self._processes: list[Any] = []

    @cached_property
    def session(self) -> "Session":
        """What is known; made once it is asked for."""
        from tui.session import Session

        return Session(self._first_state, self._changed)

    @property
    def plans(self) -> "PlansTable":
        """The table of plans."""
        from tui.widgets.plans import PlansTable

        return self.screen_stack[0].query_one(PlansTable)

    def compose(self) -> ComposeResult:
        yield Static(
            f" {self._first_state.model[:200]}  on  {self._first_state.gpus[:40]}\n\n starting ...",
            id="first",
            markup=False,
        )

    def on_mount(self) -> None:
        self.call_after_refresh(self._furnish)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Before the screen is there, leaving is all that can be done."""
        return self._furnished or action == "quit"

    async def _furnish(self) -> None:
        """The screen itself, and then the planner's processes."""
        from tui.widgets.main import Main

        screen = self.screen_stack[0]
        await screen.query_one("#first").remove()
        await screen.mount(Static(id="small"), Main(id="main"), Footer())
        self._furnished = True
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
        from tui.engine.client import PlannerProcess

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

    async def action_restart(self) -> None:
        """New planner processes, the same state."""
        await self._stop()
        await self._start()

    async def _stop(self) -> None:
        processes, self._processes = self._processes, []
        for process in processes:
            await process.stop()

    async def on_unmount(self) -> None:
        await self._stop()

    def scene(self) -> "Scene":
        """This moment, for whoever draws it."""
        from tui.scene import Scene

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
            ascii_only=self.ascii_only,
            letters=self._letters,
            readonly=self.readonly,
            pinned=session.pinned,
        )

    def _changed(self) -> None:
        """Draws at once: a picture must follow its key."""
        if self.is_running:
            self._show()

    def _show(self) -> None:
        if not self._furnished:
            return
        from tui.widgets.main import Main

        self.screen_stack[0].query_one(Main).show(self.scene())
        for top in self.screen_stack[1:]:
            tell = getattr(top, "tell", None)
            if tell is not None and self.session.tensors is not None:
                tell(self.session.tensors)

    def _tick(self) -> None:
        if self.session.busy is not None:
            self._show()

    def on_resize(self, event: Resize) -> None:
        """Another size."""
        if self._furnished:
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

    def action_step(self, name: str, forward: bool = True) -> None:
        """An option's next or previous value."""
        before = self.session.state
        self.session.change(before.stepped(name, forward, shown=self.scene().value(name)))
        if name == "lora-rank" and before == self.session.state:
            self.notify("there are no adapters: press k for LoRA first")

    def action_step_gpus(self, forward: bool) -> None:
        """Twice or half as many GPUs."""
        self.session.change(self.session.state.more_gpus(forward))

    def action_step_gpu_kind(self, forward: bool) -> None:
        """The next or the previous kind of GPU."""
        self.session.change(self.session.state.other_gpu(GPUS, forward))

    def action_undo(self) -> None:
        """The state before."""
        if not self.session.undo():
            self.notify("nothing to undo")

    def action_best(self) -> None:
        """Follows the best plan."""
        from reports.words import focus

        found = self.session.found if not self.session.searching else None
        best = None if found is None else focus(found)
        self.session.change(self.session.state.following_best(None if best is None else best.strategy))

    def action_sort(self) -> None:
        """The next order of the table of plans."""
        from tui.figures import SORTS

        table = self.plans
        table.sort_by = SORTS[(SORTS.index(table.sort_by) + 1) % len(SORTS)]
        table.redraw()
        self.notify(f"plans in order of {table.sort_by}")

    def action_losers(self) -> None:
        """Hides or shows what does not fit."""
        table = self.plans
        table.losers = not table.losers
        table.redraw()

    def action_filter(self) -> None:
        """Opens the filter line."""
        field = self.query_one("#filter", Input)
        field.add_class("-on")
        field.focus()

    @on(Input.Changed, "#filter")
    def _filter_changed(self, event: Input.Changed) -> None:
        table = self.plans
        table.filter_text = event.value
        table.redraw()

    @on(Input.Submitted, "#filter")
    def _filter_done(self, event: Input.Submitted) -> None:
        event.input.set_class(bool(event.value), "-on")
        self.plans.focus()

    def on_plans_table_chosen(self, event: "PlansTable.Chosen") -> None:
        """A plan of the table."""
        self.session.change(self.session.state.at(event.candidate.strategy))

    def action_form(self) -> None:
        """Every option at once."""
        from tui.screens.form import FormScreen

        self.push_screen(FormScreen(self.scene()))

    def on_applied(self, message: "Applied") -> None:
        """The form was filled in."""
        self.session.change(message.state)

    def action_drill(self) -> None:
        """What stands at the peak."""
        from tui.screens.drill import DrillScreen

        if self.session.picture is None:
            self.notify("there is no picture yet")
            return
        self.session.ask_tensors()
        self.push_screen(DrillScreen(self.scene(), self.session.tensors))

    def action_pin(self) -> None:
        """Remembers the configuration in the picture, or compares with the one that is remembered."""
        session = self.session
        if not session.current or session.picture is None:
            self.notify("the picture is not complete yet")
        elif session.pinned is None or session.pinned == session.picture.document:
            session.pin()
            self.notify("pinned: change something, then v shows every difference" if session.pinned else "not pinned")
        else:
            from tui.screens.compare import CompareScreen

            self.push_screen(CompareScreen(self.scene(), self._repin))

    def _repin(self) -> None:
        """Pins the configuration in the picture in place of the one before."""
        self.session.pinned = None
        self.session.pin()

    def action_leave(self) -> None:
        """Copy, save, report."""
        from tui.screens.leave import LeaveScreen

        self.push_screen(LeaveScreen(self.scene(), self.session.ask_document))

    def action_copy(self) -> None:
        """The command of the picture to the clipboard."""
        command = self.session.state.focus_command
        self.copy_to_clipboard(command)
        self.notify(command, title="copied", markup=False)

    def action_help(self) -> None:
        """Keys, and how to read the picture."""
        from tui.screens.help import HelpScreen

        self.push_screen(HelpScreen(getattr(self.screen, "help_words", "")))

    def action_launch(self) -> None:
        """Shows what would run, and launches it after a yes."""
        from tui.screens.launch import LaunchScreen

        if self.readonly:
            self.notify("--readonly: nothing is launched", severity="warning")
        elif self.session.picture is None:
            self.notify("there is no picture yet")
        else:
            self.push_screen(LaunchScreen(self.scene(), self.session.ask_document))

    async def on_launch(self, message: "Launch") -> None:
        """The person has seen everything and said yes."""
        from tui.launching import Launched
        from tui.screens.watch import WatchScreen

        launched = Launched(message.plan, message.script, message.arguments)
        try:
            await launched.start()
        except OSError as error:
            self.notify(f"it cannot be started: {error.strerror or error}", severity="error")
            return
        self.push_screen(WatchScreen(self.scene(), launched))

    def action_runs(self) -> None:
        """Runs of this folder."""
        from pathlib import Path

        from tui.screens.runs import RunsScreen

        self.push_screen(RunsScreen(self.scene(), Path.cwd()))

    def on_watch(self, message: "Watch") -> None:
        """A run that goes on."""
        from tui.screens.watch import WatchScreen

        self.push_screen(WatchScreen(self.scene(), folder=message.folder))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Everything that a key does, by name."""
        yield from super().get_system_commands(screen)
        for name in STEPPED:
            choice = CHOICES[name]
            for way, forward in (("next", True), ("previous", False)):
                yield SystemCommand(f"{choice.label}: {way}", choice.help, partial(self.action_step, name, forward))
        for title, words, action in (
            ("GPUs: twice as many", "n", partial(self.action_step_gpus, True)),
            ("GPUs: half as many", "N", partial(self.action_step_gpus, False)),
            ("GPU: next kind", "g", partial(self.action_step_gpu_kind, True)),
            ("GPU: previous kind", "G", partial(self.action_step_gpu_kind, False)),
            ("Edit every option", "e", self.action_form),
            ("Follow the best plan", "b", self.action_best),
            ("Undo", "Backspace", self.action_undo),
            ("Why: what stands at the peak", "d", self.action_drill),
            ("Pin, or compare with what is pinned", "v", self.action_pin),
            ("Copy the command", "y", self.action_copy),
            ("Export: plan, report", "x", self.action_leave),
            ("Launch", "Ctrl+R", self.action_launch),
            ("Runs: predicted beside measured", "w", self.action_runs),
            ("Sort the plans", "t", self.action_sort),
            ("Filter the plans", "/", self.action_filter),
            ("Hide or show what does not fit", "h", self.action_losers),
        ):
            yield SystemCommand(title, words, action)
