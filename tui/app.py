"""The explorer: what its keys, its palette and the mouse do. A Textual application around one session."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import SystemCommand
from textual.binding import BindingType
from textual.command import CommandPalette
from textual.screen import Screen
from textual.widgets import Input

from gpu_plan.tui.choices import GPUS
from gpu_plan.tui.keys import BINDINGS, COMMANDS
from gpu_plan.tui.shell import Shell

if TYPE_CHECKING:
    from gpu_plan.tui.screens.form import Applied
    from gpu_plan.tui.screens.launch import Launch
    from gpu_plan.tui.screens.otherwise import Taken
    from gpu_plan.tui.screens.runs import Watch
    from gpu_plan.tui.widgets.plans import PlansTable


class ExplorerApp(Shell):
    """`plan explore`."""

    BINDINGS: ClassVar[list[BindingType]] = BINDINGS

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Before the screen is there, leaving is all that can be done; None: shown, but not possible now."""
        if not self._mounted:
            return action == "quit"
        session = self.session
        match action:
            case "letter":
                return session.state.menu.by_key(str(parameters[0])) is not None
            case "launch":
                return not self.readonly
            case "best":
                return None if session.state.following else True
            case "drill" | "streams":
                return None if session.picture is None else True
            # Not whether the picture is complete: that changes with every key, and the footer would with it.
            case "pin":
                return (None if session.picture is None else True) if session.pinning else False
            case "compare":
                return (None if session.picture is None else True) if not session.pinning else False
        return True

    def possible(self) -> tuple[bool, ...]:
        return tuple(bool(self.check_action(name, ())) for name in ("best", "drill", "pin", "compare"))

    # -- options ----------------------------------------------------------------------------------------------

    def action_letter(self, letter: str, forward: bool = True) -> None:
        """The next or previous value of the option that a key moves."""
        name = self.session.state.menu.by_key(letter)
        if name is not None:
            self.action_step(name, forward)

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

    def action_other_task(self) -> None:
        """Generation instead of training, and back."""
        state = self.session.state
        if state.model.endswith(".py"):
            self.notify("a training script generates nothing: name a model in the form (e)")
        else:
            self.session.change(state.with_task(None if state.task else "infer"))

    def action_undo(self) -> None:
        """The state before."""
        if not self.session.undo():
            self.notify("nothing to undo")

    def action_best(self) -> None:
        """Follows the best plan."""
        from gpu_plan.reports.plan.words import focus

        found = self.session.found if not self.session.searching else None
        best = None if found is None else focus(found)
        self.session.change(self.session.state.following_best(None if best is None else best.strategy))

    # -- the table of plans -----------------------------------------------------------------------------------

    def action_sort(self) -> None:
        """The next order of the table of plans."""
        from gpu_plan.tui.picture.figures import SORTS

        table = self.plans
        self.notify(table.sort_with(SORTS[(SORTS.index(table.sort_by) + 1) % len(SORTS)]))

    def action_rejected_too(self) -> None:
        """Hides or shows what does not fit."""
        table = self.plans
        table.rejected_too = not table.rejected_too
        table.redraw()

    def action_filter(self) -> None:
        """Opens the filter line."""
        field = self.query_one("#filter", Input)
        field.add_class("-on")
        field.focus()

    def action_close_filter(self) -> None:
        """Every plan again."""
        field = self.query_one("#filter", Input)
        field.value = ""
        field.remove_class("-on")
        self.plans.focus()

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

    def on_plans_table_pointed(self, event: "PlansTable.Pointed") -> None:
        """Another row under the cursor: why it lost is told where its column is out of sight."""
        if event.reason != self._pointed:
            self._pointed = event.reason
            self._show()

    # -- panels -----------------------------------------------------------------------------------------------

    def action_form(self) -> None:
        """Every option at once."""
        from gpu_plan.tui.screens.form import FormScreen

        self.push_screen(FormScreen(self.scene()))

    def on_applied(self, message: "Applied") -> None:
        """The form was filled in."""
        self.session.change(message.state)

    def action_drill(self) -> None:
        """What stands at the peak."""
        from gpu_plan.tui.screens.drill import DrillScreen

        self.session.ask_tensors()
        self.push_screen(DrillScreen(self.scene(), self.session.tensors))

    def action_streams(self) -> None:
        """What runs on each stream of a step."""
        from gpu_plan.tui.screens.streams import StreamsScreen

        self.session.ask_lanes()
        self.push_screen(StreamsScreen(self.scene(), self.session.lanes))

    def action_otherwise(self) -> None:
        """What else could be done."""
        from gpu_plan.tui.screens.otherwise import OtherwiseScreen

        self.push_screen(OtherwiseScreen(self.scene(), self.session.ask_otherwise))

    def on_taken(self, message: "Taken") -> None:
        """A change of what else could be done."""
        self.session.change(message.state)

    def action_pin(self) -> None:
        """Remembers the configuration in the picture, or forgets it."""
        if not self.session.current:
            self.notify("the picture is not complete yet")
            return
        self.session.pin()
        self.notify("pinned: change something, then v shows every difference" if self.session.pinned else "not pinned")

    def action_compare(self) -> None:
        """Every difference from the configuration that is pinned."""
        from gpu_plan.tui.screens.compare import CompareScreen

        if not self.session.current:
            self.notify("the picture is not complete yet")
            return
        self.push_screen(CompareScreen(self.scene(), self._repin))

    def _repin(self) -> None:
        """Pins the configuration in the picture in place of the one before."""
        self.session.pinned = None
        self.session.pin()

    def action_leave(self) -> None:
        """Copy, save, report."""
        from gpu_plan.tui.screens.leave import LeaveScreen

        self.push_screen(LeaveScreen(self.scene(), self.session.ask_document))

    def action_copy(self) -> None:
        """The command of the picture to the clipboard."""
        command = self.session.state.focus_command
        self.copy_to_clipboard(command)
        self.notify(command, title="copied", markup=False)

    def action_help(self) -> None:
        """Keys, and how to read the picture."""
        from gpu_plan.tui.screens.help import HelpScreen

        self.push_screen(HelpScreen(getattr(self.screen, "help_words", ""), self.session.state.menu))

    def action_launch(self) -> None:
        """Shows what would run, and launches it after a yes."""
        from gpu_plan.tui.screens.launch import LaunchScreen

        if self.session.picture is None:
            self.notify("there is no picture yet")
        else:
            self.push_screen(LaunchScreen(self.scene(), self.session.ask_document))

    async def on_launch(self, message: "Launch") -> None:
        """The person has seen everything and said yes."""
        from gpu_plan.tui.launching import Launched
        from gpu_plan.tui.screens.watch import WatchScreen

        launched = Launched(message.plan, message.script, message.arguments)
        try:
            await launched.start()
        except OSError as error:
            self.notify(f"it cannot be started: {error.strerror or error}", severity="error", markup=False)
            return
        self.push_screen(WatchScreen(self.scene(), launched))

    def action_runs(self) -> None:
        """Runs of this folder."""
        from pathlib import Path

        from gpu_plan.tui.screens.runs import RunsScreen

        self.push_screen(RunsScreen(self.scene(), Path.cwd()))

    def on_watch(self, message: "Watch") -> None:
        """A run that goes on."""
        from gpu_plan.tui.screens.watch import WatchScreen

        self.push_screen(WatchScreen(self.scene(), folder=message.folder))

    def action_command_palette(self) -> None:
        """Everything by name."""
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandPalette(placeholder="name what you want to do", id="--command-palette"))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Everything that a key does, by name."""
        yield from super().get_system_commands(screen)
        if not self._mounted:
            return
        menu = self.session.state.menu
        for name in menu.stepped:
            choice = menu.choices[name]
            for way, forward in (("next", True), ("previous", False)):
                yield SystemCommand(f"{choice.label}: {way}", choice.help, partial(self.action_step, name, forward))
        for title, key, action in COMMANDS:
            if self.check_action(action.partition("(")[0], ()):
                yield SystemCommand(title, key, self._later(action))

    def _later(self, action: str) -> Callable[[], None]:
        def run() -> None:
            self.call_later(self.run_action, f"app.{action}")

        return run
