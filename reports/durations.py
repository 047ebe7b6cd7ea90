"""Durations in words, the same in every report."""


def seconds(value: float) -> str:
    """`412 ms`, `3.21 s`, `95.0 s`, `12.4 min`, `10.2 h`."""
    if value < 1:
        return f"{value * 1000:.3g} ms" if value < 0.1 else f"{value * 1000:.0f} ms"
    return f"{value:.2f} s" if value < 10 else _long(value)


def _long(value: float) -> str:
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:,.1f} h"
