"""What the explorer's keys do, and which of them can do something now."""

from textual.binding import Binding, BindingType

from gpu_plan.tui.choices import GENERATION, SCRIPT, TRAINING

LETTERS = tuple(
    dict.fromkeys(menu.choices[name].key for menu in (TRAINING, GENERATION, SCRIPT) for name in menu.stepped)
)
"""Keys that move an option; which one depends on the kind of job."""

EXTRA = frozenset({"filter", "sort", "runs", "launch", "otherwise"})
"""Actions that the footer shows where there is room."""


def _letters() -> list[BindingType]:
    """Lower case moves on, upper case moves back."""
    found: list[BindingType] = []
    for letter in LETTERS:
        found.append(Binding(letter, f"letter('{letter}')", show=False))
        found.append(Binding(letter.upper(), f"letter('{letter}', False)", show=False))
    return found


BINDINGS: list[BindingType] = [
    Binding("e", "form", "Edit", tooltip="every option in a form"),
    Binding("b", "best", "Best", tooltip="follow the best plan"),
    Binding("d", "drill", "Why", tooltip="what stands at the peak"),
    Binding("f", "otherwise", "What else", tooltip="what else you could do, with figures: Enter takes it"),
    Binding("v", "pin", "Pin", tooltip="remember this one, to compare others with it"),
    Binding("v", "compare", "Compare", tooltip="every difference from the one that is pinned"),
    Binding("x", "leave", "Export", tooltip="copy, save, report"),
    Binding("slash", "filter", "Filter", tooltip="filter the table of plans"),
    Binding("t", "sort", "Sort", tooltip="the table's next order; or click a column's head"),
    Binding("w", "runs", "Runs", tooltip="runs of this folder: predicted beside measured"),
    Binding("ctrl+r", "launch", "Launch", tooltip="show what would run, then launch it"),
    Binding("question_mark,f1", "help", "Help", key_display="?"),
    Binding("q", "quit", "Quit"),
    Binding("g", "step_gpu_kind(True)", "next GPU", show=False),
    Binding("G", "step_gpu_kind(False)", "previous GPU", show=False),
    Binding("n", "step_gpus(True)", "twice the GPUs", show=False),
    Binding("N", "step_gpus(False)", "half the GPUs", show=False),
    Binding("backspace", "undo", "undo", show=False),
    Binding("escape", "close_filter", "close the filter", show=False),
    Binding("h", "rejected_too", "hide what does not fit", show=False),
    Binding("y", "copy", "copy the command", show=False),
    Binding("j", "streams", "one step, stream by stream", show=False),
    Binding("f5", "restart", "restart the planner", show=False),
    *_letters(),
]

COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("GPUs: twice as many", "n", "step_gpus(True)"),
    ("GPUs: half as many", "N", "step_gpus(False)"),
    ("GPU: next kind", "g", "step_gpu_kind(True)"),
    ("GPU: previous kind", "G", "step_gpu_kind(False)"),
    ("Edit every option", "e", "form"),
    ("Follow the best plan", "b", "best"),
    ("Undo", "Backspace", "undo"),
    ("Why: what stands at the peak", "d", "drill"),
    ("One step, stream by stream", "j", "streams"),
    ("What else you could do", "f", "otherwise"),
    ("Pin this configuration", "v", "pin"),
    ("Compare with what is pinned", "v", "compare"),
    ("Copy the command", "y", "copy"),
    ("Export: plan, report", "x", "leave"),
    ("Launch", "Ctrl+R", "launch"),
    ("Runs: predicted beside measured", "w", "runs"),
    ("Sort the plans", "t", "sort"),
    ("Filter the plans", "/", "filter"),
    ("Hide or show what does not fit", "h", "rejected_too"),
    ("Train or generate: the other task", "e", "other_task"),
    ("Start the planner's processes anew", "F5", "restart"),
)
"""Title, key and action of the command palette's entries, beside the options."""
