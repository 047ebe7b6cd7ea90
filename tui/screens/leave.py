"""Take something along: the exact command, the plan as a file, a report."""

import os
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from gpu_plan.planner.errors import PlanError, UsageError
from gpu_plan.planner.plan.document import PlanDocument
from gpu_plan.planner.plan.drawn.lanes import Lane
from gpu_plan.planner.plan.files import save, write_text
from gpu_plan.planner.plan.saved import saved_plan
from gpu_plan.planner.plan.timeline import Timeline
from gpu_plan.tui.engine.messages import Reply
from gpu_plan.tui.picture.scene import Scene
from gpu_plan.tui.screens.panel import Panel

FORMS = {
    "plan": ("the plan, for plan --plan FILE --execute SCRIPT", ".plan.json"),
    "text": ("report as plain text", ".txt"),
    "md": ("report for a pull request (Markdown)", ".md"),
    "html": ("report as one page (HTML)", ".html"),
    "json": ("everything as JSON, for scripts", ".json"),
    "csv": ("the figures as a table (CSV)", ".csv"),
}
"""What can be written, and how its file ends."""


class LeaveScreen(Panel):
    """What to take along; files are asked for by name, and one that exists is replaced only after a second yes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("y", "copy", "Copy the command")]
    title_words = "Copy, save or launch"

    help_words = "What is written is what the command above gives; a file that exists is replaced after a second Enter."

    def __init__(self, scene: Scene, ask: Callable[[Callable[[Reply], None], bool], None]) -> None:
        super().__init__()
        self._scene, self._ask = scene, ask
        self._form = ""
        self._confirmed = ""

    def body(self) -> list[Widget]:
        options = [Option("copy the command of this configuration", id="copy")]
        options += [Option(words, id=form) for form, (words, _) in FORMS.items()]
        if not self._scene.readonly:
            options.append(Option("launch it: shows the whole command and every file first", id="launch"))
        told = "" if not self._scene.readonly else "--readonly: nothing is launched"
        return [
            Static(Text(self._scene.safe(self._scene.state.focus_command)), id="leave-command"),
            OptionList(*options, id="leave-list"),
            Input(id="leave-file", placeholder="file", compact=True),
            Static(told, id="leave-note"),
        ]

    def on_mount(self) -> None:
        self.query_one("#leave-file").display = False
        self.query_one(OptionList).focus()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        chosen = str(event.option.id)
        if chosen == "copy":
            self.action_copy()
        elif chosen == "launch":
            self.dismiss(None)
            self.app.call_later(self.app.run_action, "app.launch")
        else:
            self._form = chosen
            field = self.query_one("#leave-file", Input)
            field.display = True
            name = PurePath(self._scene.state.model).name.replace(":", "-")[:60]
            field.value = f"{name}{FORMS[chosen][1]}"
            field.focus()

    def action_copy(self) -> None:
        """The command to the clipboard."""
        self.app.copy_to_clipboard(self._scene.state.focus_command)
        self._say("copied; where the terminal has no clipboard: select the line above")

    @on(Input.Submitted)
    def _named(self, event: Input.Submitted) -> None:
        event.stop()
        path = os.path.expanduser(event.value.strip())
        if not path:
            self._say("name a file")
        elif os.path.lexists(path) and self._confirmed != path:
            self._confirmed = path
            self._say(f"{path} exists: Enter once more replaces it, as --force does")
        else:
            self._say("making it ...")
            self._ask(lambda reply: self._write(reply, path), self._form == "html")

    def _write(self, reply: Reply, path: str) -> None:
        if reply.document is None:
            self._say(f"not written: {reply.text}")
            return
        try:
            text = None if self._form == "plan" else rendered(reply.document, self._form, reply.timeline, reply.lanes)
            written = write(reply.document, text, path, force=self._confirmed == path)
        except PlanError as problem:
            self._say(str(problem))
        else:
            self._say(written)

    def _say(self, words: str) -> None:
        if self.is_attached:
            self.query_one("#leave-note", Static).update(Text(self._scene.safe(words)))


def write(document: PlanDocument, text: str | None, path: str, *, force: bool) -> str:
    """Writes a report's text, or the plan where there is none; gives what to say. Raises PlanError as
    `gpu_plan.planner.plan.files` does."""
    if text is None:
        if document.best is None:
            raise UsageError("it does not fit: there is no plan to save")
        save(saved_plan(document), path, force=force)
    else:
        write_text(path, text, force=force)
    return f"wrote {path}"


def rendered(document: PlanDocument, form: str, timeline: Timeline | None = None, lanes: Sequence[Lane] = ()) -> str:
    """The report as `plan --format` writes it to a file."""
    if form == "md":
        from gpu_plan.reports.plan.markdown import render_markdown

        return render_markdown(document)
    if form == "json":
        from gpu_plan.reports.plan.as_json import render_json

        return render_json(document) + "\n"
    if form == "html":
        from gpu_plan.reports.html.render import render_html

        return render_html(document, timeline=timeline, lanes=lanes)
    if form == "csv":
        from gpu_plan.reports.tables.as_csv import render_csv

        return render_csv(document)
    from gpu_plan.reports.plan.terminal import render_terminal

    return render_terminal(document, width=100, color=False)
