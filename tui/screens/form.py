"""Every option at once. What is left empty is searched, or takes its default."""

import shlex
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.widget import Widget
from textual.widgets import Input, Label

from gpu_plan.planner.errors import UsageError
from gpu_plan.tui.choices import GPUS, Choice
from gpu_plan.tui.picture.lines import shortened
from gpu_plan.tui.picture.scene import Scene
from gpu_plan.tui.screens.panel import Panel
from gpu_plan.tui.state import State

TASKS = ("train", "infer")


class Applied(Message):
    """The form was filled in."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state


class FormScreen(Panel):
    """A line for each option of the command line."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+s", "apply", "Apply", priority=True)]
    help_words = (
        "Tab moves on, the right arrow takes a suggestion. An empty line is searched, or takes its default. Esc leaves."
    )
    title_words = "Every option: empty means searched, or its default. Enter or Ctrl+S applies, Esc leaves"

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene
        self._hints: dict[str, str] = {}
        """Of each field, whole."""

    def body(self) -> list[Widget]:
        state, menu = self._scene.state, self._scene.state.menu
        given = dict(state.given)
        gpus = tuple(f"8x{name}" for name in GPUS)
        lines = [
            _line("model", state.model, "hub id, folder, config.json, package.module:factory or train.py"),
            _line("gpus", state.gpus, "8xH100, 2x8xA100-80GB, 2xT4, cpu", gpus),
        ]
        if state.model.endswith(".py"):
            lines.append(_line("args", shlex.join(state.script_words), "arguments of the script, after --"))
        else:
            lines.append(_line("task", state.task or "train", "train or infer", TASKS))
        for name, choice in menu.choices.items():
            if name not in menu.fixed:
                words = _hint(choice, self._scene.value(name), searched=name in menu.searched)
                lines.append(_line(name, given.get(name, ""), words, choice.values, choice.label))
        lines.append(_line("set", " ".join(state.settings), "KEY=VALUE ..., such as alloc.expandable_segments=true"))
        return [VerticalScroll(*lines, id="form")]

    def on_mount(self) -> None:
        self.query(Input).first().focus()
        self.call_after_refresh(self._shorten)

    def on_resize(self) -> None:
        """A hint that is longer than its line ends in an ellipsis."""
        self.call_after_refresh(self._shorten)

    def _shorten(self) -> None:
        for field in self.query(Input):
            whole = self._hints.setdefault(str(field.id), field.placeholder)
            field.placeholder = shortened(whole, field.content_size.width, self._scene.ascii_only)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter anywhere applies everything."""
        event.stop()
        self.action_apply()

    def action_apply(self) -> None:
        """The state that the form describes."""
        values = {str(field.id).removeprefix("in-"): field.value.strip() for field in self.query(Input)}
        try:
            state = changed(self._scene.state, values)
        except UsageError as problem:
            self.notify(self._scene.safe(str(problem)), severity="error", markup=False)
            return
        self.dismiss(None)
        self.app.post_message(Applied(state))


def _hint(choice: Choice, now: str, *, searched: bool) -> str:
    """What an empty line stands for, and what the option is."""
    return choice.help if now == "-" else f"{'searched' if searched else 'default'}, now {now}; {choice.help}"


def _line(name: str, value: str, hint: str, values: tuple[str, ...] = (), label: str = "") -> Widget:
    suggester = SuggestFromList(values, case_sensitive=False) if values else None
    option = Label(Text({"model": "MODEL", "args": "-- ARGS"}.get(name, f"--{name}")), classes="form-option")
    option.tooltip = label or name
    field = Input(value, placeholder=hint, id=f"in-{name}", suggester=suggester, compact=True)
    return Horizontal(option, field, classes="form-line")


def changed(state: State, values: dict[str, str]) -> State:
    """`state` with the form's values; nothing else moves. UsageError for a task that there is not."""
    menu, given = state.menu, dict(state.given)
    if values["model"] and values["model"] != state.model:
        state = state.with_model(values["model"])
    if values["gpus"]:
        state = state.with_gpus(values["gpus"])
    if "args" in values:
        state = state.with_script_words(_split(values["args"]))
    for name in menu.choices:
        value = values.get(name, "")
        if name not in menu.fixed and value != given.get(name, ""):
            state = state.with_option(name, value or None)
    state = _with_settings(state, tuple(values.get("set", "").split()))
    task = values.get("task") or "train"
    if task not in TASKS:
        raise UsageError(f"--task {task!r} is unknown: use {' or '.join(TASKS)}")
    return state.with_task(None if task == "train" else task)


def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as problem:
        raise UsageError(f"-- {text}: {problem}: close what was opened") from None


def _with_settings(state: State, wanted: tuple[str, ...]) -> State:
    for word in state.settings:
        if word not in wanted:
            state = state.with_setting(word.partition("=")[0], None)
    for word in wanted:
        if word not in state.settings:
            key, _, value = word.partition("=")
            state = state.with_setting(key, value)
    return state
