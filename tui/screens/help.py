"""What every key does, here and now."""

from rich.text import Text
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from gpu_plan.tui.choices import TRAINING, Menu
from gpu_plan.tui.picture.lines import KEY
from gpu_plan.tui.screens.panel import Panel

_ELSE = (
    ("g  G", "next, previous kind of GPU"),
    ("n  N", "twice, half as many GPUs"),
    ("e", "every option in a form: model, GPUs, --set, what has no key"),
    ("Backspace", "undo the last change"),
    ("b", "follow the best plan, whatever changes"),
    ("Enter", "on a plan: show it above"),
    ("t  /  h", "sort (or click a head), filter the plans (Esc: all again); hide what does not fit"),
    ("d", "why so much: categories, modules, tensors; Enter deeper, Esc back"),
    ("j", "one step, stream by stream: what computes, what is sent, what is waited for"),
    ("f", "what else you could do, each change with its figures; Enter takes it"),
    ("v", "pin this configuration; after a change: every difference"),
    ("x", "copy the command, save the plan, write a report, launch"),
    ("y", "copy the command of this picture"),
    ("w", "runs of this folder: predicted beside measured, or watch one"),
    ("Ctrl+P", "everything by name; light and dark under Theme"),
    ("F5", "start the planner's processes anew; a script that was edited is read again"),
    ("q", "leave"),
)
_READING = (
    "The bar is the worst rank's GPU: every category at the peak, then what the allocator keeps and what lies outside",
    "it. Hatched: what the interval's high end may take. The line under it ends at the capacity.",
    "FITS: the high end is within the capacity. TIGHT: the interval straddles it. OOM: beyond it, or fragmented.",
    "A star after a value: tried in the picture alone; the table below is of what was given, everything else searched.",
    "'at least' and dots instead of the verdict: the tensors' sum, for a moment, until the allocator is simulated.",
)


class HelpScreen(Panel):
    """Keys, and how to read the picture."""

    title_words = "Keys: lower case moves on, upper case back"

    def __init__(self, where: str = "", menu: Menu = TRAINING) -> None:
        super().__init__()
        self._where, self._menu = where, menu

    def body(self) -> list[Widget]:
        text = Text()
        if self._where:
            text.append(self._where + "\n\n", style="italic")
        for name in self._menu.stepped:
            choice = self._menu.choices[name]
            _row(text, f"{choice.key}  {choice.key.upper()}", f"{choice.label}: {choice.help}")
        if self._menu.fixed:
            labels = ", ".join(self._menu.choices[name].label for name in self._menu.fixed)
            _row(text, "=", f"{labels}: as the script has them; its arguments after -- (e) may change them")
        for keys, words in _ELSE:
            _row(text, keys, words)
        text.append("\n" + "\n".join(_READING), style="dim")
        return [VerticalScroll(Static(text), id="help")]

    def on_mount(self) -> None:
        self.query_one("#help").focus()


def _row(text: Text, keys: str, words: str) -> None:
    text.append(f"{keys:<11}", style=KEY)
    text.append(words + "\n")
