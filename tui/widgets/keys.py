"""The footer: what can be done now, the finer things only where there is room for them."""

from textual.app import ComposeResult
from textual.widgets import Footer

from gpu_plan.tui.keys import EXTRA


class Keys(Footer):
    """A footer whose further keys are of the class `-extra`."""

    def compose(self) -> ComposeResult:
        for widget in super().compose():
            if str(getattr(widget, "action", "")).removeprefix("app.") in EXTRA:
                widget.add_class("-extra")
            yield widget
