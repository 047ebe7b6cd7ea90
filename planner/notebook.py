"""How documents show themselves in notebooks: they ask `reports` to draw them, by name, where it is installed."""

from importlib import import_module


def shown(renderer: str, value: object) -> str | None:
    """HTML of `value` by `reports.html_notebook`'s function of that name; None where nothing can draw it, and the
    notebook then shows its plain words. A document itself imports nothing that draws."""
    try:
        drawn: str = getattr(import_module("reports.html_notebook"), renderer)(value)
    except ImportError:
        return None
    return drawn
