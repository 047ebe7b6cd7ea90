"""What is to count first when plans are ordered: values of `--prefer`."""

from enum import StrEnum


class Prefer(StrEnum):
    """What is to count first."""

    BALANCE = "balance"
    """Among what is as fast as can be told: less RAM of the node, fewer moving parts, more headroom."""
    SPEED = "speed"
    MEMORY = "memory"
    COST = "cost"
    SIMPLE = "simple"
