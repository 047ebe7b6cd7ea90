"""SkyPilot's task: the nodes of the task in which this process is (sky/skylet/constants.py: SKYPILOT_NUM_NODES)."""

import os
from collections.abc import Mapping

NAME = "skypilot"


def task(environment: Mapping[str, str] = os.environ) -> int | None:
    """Nodes of the task; None outside of one."""
    text = environment.get("SKYPILOT_NUM_NODES", "")
    return int(text) if text.isdigit() and int(text) > 0 else None
