"""SkyPilot: tasks, by its own client.

engine     its traits, and what the registry finds
task       a task as plain values: of an export, and of a run
client     the `sky` command: submit, state, cancel
"""

from gpu_plan.executor.engines.kinds.skypilot.engine import ENGINE

__all__ = ["ENGINE"]
