"""Every option at once. What is left empty is searched, or takes its default."""

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.widget import Widget
from textual.widgets import Input, Label

from tui.choices import CHOICES, GPUS, SEARCHED
from tui.scene import Scene
from tui.screens.panel import Panel
from tui.state import State


class Applied(Message):
    """The form was filled in."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state


class FormScreen(Panel):
    """A line for each option of the command line."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+s", "apply", "Apply", priority=True)]
    title_words = "Every option: empty means searched, or its default. Enter or Ctrl+S applies, Esc leaves"

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene

    def body(self) -> list[Widget]:
        state, given = self._scene.state, dict(self._scene.state.given)
        lines = [
            _line("model", state.model, "hub id, folder, config.json or package.module:factory", ()),
            _line("gpus", state.gpus, "8xH100, 2x8xA100-80GB, 2xT4, cpu", tuple(f"8x{name}" for name in GPUS)),
        ]
        for name, choice in CHOICES.items():
            now = self._scene.value(name)
            hint = "searched" if name in SEARCHED else "default"
            words = f"{hint}, now {now}; {choice.help}" if now != "-" else choice.help
            lines.append(_line(name, given.get(name, ""), words, choice.values))
        lines.append(
            _line("set", " ".join(state.settings), "KEY=VALUE ..., such as alloc.expandable_segments=true", ())
        )
        return [VerticalScroll(*lines, id="form")]

    def on_mount(self) -> None:
        self.query(Input).first().focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter anywhere applies everything."""
        event.stop()
        self.action_apply()

    def action_apply(self) -> None:
        """The state that the form describes."""
        values = {str(field.id).removeprefix("in-"): field.value.strip() for field in self.query(Input)}
        state = changed(self._scene.state, values)
        self.dismiss(None)
        self.app.post_message(Applied(state))


def _line(name: str, value: str, hint: str, values: tuple[str, ...]) -> Widget:
    suggester = SuggestFromList(values, case_sensitive=False) if values else None
    label = CHOICES[name].label if name in CHOICES else name
    option = Label(Text(f"--{name}" if name != "model" else "MODEL"), classes="form-option")
    option.tooltip = label
    field = Input(value, placeholder=hint, id=f"in-{name}", suggester=suggester, compact=True)
    return Horizontal(option, field, classes="form-line")


def changed(state: State, values: dict[str, str]) -> State:
    """`state` with the form's values; nothing else moves."""
    if values["model"] and values["model"] != state.model:
        state = state.with_model(values["model"])
    if values["gpus"]:
        state = state.with_gpus(values["gpus"])
    given = dict(state.given)
    for name in CHOICES:
        value = values.get(name, "")
        if value != given.get(name, ""):
            state = state.with_option(name, value or None)
    wanted = tuple(values.get("set", "").split())
    for word in state.settings:
        if word not in wanted:
            state = state.with_setting(word.partition("=")[0], None)
    for word in wanted:
        if word not in state.settings:
            key, _, value = word.partition("=")
            state = state.with_setting(key, value)
    return state
