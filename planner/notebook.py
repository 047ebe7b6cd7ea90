"""How documents show themselves in notebooks: drawn by whoever is installed to, and known by its entry point."""

GROUP = "gpu_plan.notebook"
"""Entry points whose modules have functions that draw documents."""


def shown(renderer: str, value: object) -> str | None:
    """HTML of `value` by the installed drawer's function of that name; None where nothing can draw it.

    The notebook then shows plain words. A document itself imports nothing that draws, and knows nobody who does.
    """
    from importlib.metadata import entry_points

    for drawer in entry_points(group=GROUP):
        try:
            drawn: str = getattr(drawer.load(), renderer)(value)
        except ImportError:
            continue
        return drawn
    return None
