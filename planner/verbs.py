"""The verbs of the command line: those that exist, and those that later versions bring."""

VERBS = {
    "models": "planner.commands.models",
    "gpus": "planner.commands.gpus",
    "diff": "planner.commands.diff",
    "export": "planner.commands.export",
    "report": "planner.commands.report",
    "runs": "planner.commands.runs",
    "doctor": "planner.commands.doctor",
    "check": "planner.commands.check",
    "from-config": "planner.commands.from_config",
    "explore": "planner.commands.explore",
}
"""Verbs that exist, and the module that is imported only for its own."""
LATER_VERBS = ("calibrate",)
"""Verbs of the interface that later versions bring; refused by name."""
