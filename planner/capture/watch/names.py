"""Names under which what is captured stands in a trace. Without torch: those who read traces know them too."""

SCORING, PREFILL, DECODE = "log-probabilities", "prefill", "decode"
"""Names of passages before a step."""
ROLLOUTS = (PREFILL, DECODE)
"""Those of a generation: its two ends."""


def other_name(number: int) -> str:
    """Name under which the modules of the `number`-th further model stand beside those of the first."""
    return f"models.{number}"
