"""What all panels share: a frame with a title over the picture, and Esc to leave."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Footer, Static


class Panel(ModalScreen[None]):
    """A panel over the explorer. Subclasses give `title_words` and `body`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("f1,question_mark", "app.help", "Help", key_display="F1"),
    ]
    title_words = ""
    help_words = ""
    """What the help says of this panel."""

    def compose(self) -> ComposeResult:
        with Vertical(id="panel"):
            yield Static(Text(self.title_words, style="bold"), id="panel-title")
            yield from self.body()
        yield Footer()

    def body(self) -> list[Widget]:
        """What stands under the title."""
        raise NotImplementedError

    def say_title(self, words: str) -> None:
        """Another title."""
        self.query_one("#panel-title", Static).update(Text(words, style="bold"))

    def action_back(self) -> None:
        """Back to what was there before."""
        self.dismiss(None)
