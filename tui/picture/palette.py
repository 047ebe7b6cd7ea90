"""Colours and letters of the categories: the same colours as in plots, mid-tones that stand out on dark and light."""

COLOURS = {
    "parameters": "#4e79a7", "gradients": "#f28e2b", "optimizer_state": "#76b7b2", "activations": "#e15759",
    "temporary": "#edc948", "communication": "#b07aa1", "buffers": "#9c755f", "inputs": "#59a14f",
    "kv_cache": "#bab0ac", "cached": "#8cb4d8", "outside": "#ff9da7", "other": "#888888", "small": "#888888",
}  # fmt: skip
LETTERS = {
    "parameters": "P", "gradients": "G", "optimizer_state": "O", "activations": "A", "temporary": "T",
    "communication": "C", "buffers": "B", "inputs": "I", "kv_cache": "K", "cached": "c", "outside": "x", "other": "o",
    "small": "s",
}  # fmt: skip
"""Where there are no colours, or only ASCII."""
GOOD, WARN, BAD = "#2f9e55", "#c98a00", "#d9534f"
VERDICT_COLOURS = {"fits": GOOD, "tight": WARN, "no": BAD}
_DARK_INK = frozenset({"gradients", "optimizer_state", "temporary", "kv_cache", "cached", "outside"})


def ink(key: str) -> str:
    """What is written on a category's colour."""
    return "#111111" if key in _DARK_INK else "#ffffff"
