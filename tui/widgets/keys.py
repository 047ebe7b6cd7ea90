"""The footer: what can be done now, the finer things only where there is room for them."""

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer

from gpu_plan.tui.keys import EXTRA


class Keys(Footer):
    """A footer whose further keys are of the class `-extra`; it is made anew only where its keys are others."""

    _shown: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        for widget in super().compose():
            if str(getattr(widget, "action", "")).removeprefix("app.") in EXTRA:
                widget.add_class("-extra")
            yield widget

    def bindings_changed(self, screen: Screen[object]) -> None:
        """Textual says so at each change of the focus, whatever the keys are."""
        bindings = screen.active_bindings.values() if self.is_attached and screen is self.screen else ()
        shown = tuple((binding, enabled, tooltip) for _, binding, enabled, tooltip in bindings if binding.show)
        if shown and shown == self._shown:
            return
        self._shown = shown if screen.app.app_focus else ()
        super().bindings_changed(screen)
