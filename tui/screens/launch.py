"""Launch with confirmation: the whole command and every file are shown before anything runs."""

import os
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.text import Text
from textual import on, work
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.plan.files import save
from gpu_plan.planner.plan.saved import saved_plan
from gpu_plan.reports.clean import keep_columns
from gpu_plan.tui.engine.messages import Reply
from gpu_plan.tui.launching import preview
from gpu_plan.tui.picture.scene import Scene
from gpu_plan.tui.screens.panel import Panel


class Launch(Message):
    """The person has seen everything and said yes."""

    def __init__(self, plan: str, script: str, arguments: list[str]) -> None:
        super().__init__()
        self.plan, self.script, self.arguments = plan, script, arguments


class LaunchScreen(Panel):
    """Script and arguments, then what would run, then a button."""

    help_words = "Nothing runs before you have seen the command and every file, and pressed the button. Esc leaves."
    title_words = "Launch: name the script, look at what would run, then launch"

    def __init__(self, scene: Scene, ask: Callable[[Callable[[Reply], None]], None]) -> None:
        super().__init__()
        self._scene, self._ask = scene, ask
        self._plan = ""
        self._shown: tuple[str, list[str]] | None = None

    def body(self) -> list[Widget]:
        return [
            Input(self._known(), id="launch-script", placeholder=f"{self._example()}; Enter shows it", compact=True),
            VerticalScroll(Static(id="launch-files"), id="launch-scroll"),
            Horizontal(Button("Launch", id="launch-go", variant="error", disabled=True), id="launch-buttons"),
            Static(id="launch-note"),
        ]

    def _known(self) -> str:
        """The script that is planned, where one is."""
        state = self._scene.state
        return shlex.join((state.model, *state.script_words)) if state.model.endswith(".py") else ""

    def _example(self) -> str:
        if self._scene.state.task == "infer":
            return "@generate --prompts prompts.txt --output results.jsonl"
        return "train.py [arguments]"

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._say("the plan of the picture is being made ...")
        self._ask(self._made)

    def _made(self, reply: Reply) -> None:
        document = reply.document
        if document is None or document.best is None:
            self._say(reply.text or "this configuration does not fit: nothing is launched with it")
            return
        try:
            folder = Path(tempfile.mkdtemp(prefix="plan-explore-"))
            self._plan = str(folder / "plan.json")
            save(saved_plan(document), self._plan, force=True)
        except (PlanError, OSError) as problem:
            self._say(str(problem))
            return
        self._say(f"the plan is in {self._plan}")

    @on(Input.Changed)
    def _edited(self, event: Input.Changed) -> None:
        """What was shown is not what would run any more."""
        event.stop()
        self._shown = None
        self.query_one(Button).disabled = True

    @on(Input.Submitted)
    def _named(self, event: Input.Submitted) -> None:
        event.stop()
        try:
            words = shlex.split(event.value)
        except ValueError as problem:
            self._say(f"{problem}: close what was opened")
            return
        if not words or not self._plan:
            self._say("name a script" if self._plan else "there is no plan yet")
            return
        script, *arguments = words
        self._say("looking at the script ...")
        self._look(os.path.expanduser(script), arguments)

    @work(exclusive=True)
    async def _look(self, script: str, arguments: list[str]) -> None:
        code, output = await preview(self._plan, script, arguments)
        if not self.is_attached:
            return
        safe = "\n".join(keep_columns(line, self._scene.safe) for line in output.splitlines())
        self.query_one("#launch-files", Static).update(Text(safe))
        if code:
            self._say("nothing can be launched so: see above")
            return
        self._shown = (script, arguments)
        button = self.query_one(Button)
        button.disabled = False
        button.focus()
        self._say("this is all that would run; the button launches it, Esc does not")

    @on(Button.Pressed)
    def _go(self, event: Button.Pressed) -> None:
        event.stop()
        if self._shown is not None:
            script, arguments = self._shown
            self.app.post_message(Launch(self._plan, script, arguments))
            self.dismiss(None)

    def _say(self, words: str) -> None:
        if self.is_attached:
            self.query_one("#launch-note", Static).update(Text(self._scene.safe(words)))
