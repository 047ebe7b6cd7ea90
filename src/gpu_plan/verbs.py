"""The verbs of the command line: those that exist, and those that later versions bring."""

VERBS = {
    "models": "gpu_plan.commands.models",
    "gpus": "gpu_plan.commands.gpus",
    "diff": "gpu_plan.commands.diff",
    "export": "gpu_plan.commands.export",
    "convert": "gpu_plan.commands.convert",
    "report": "gpu_plan.commands.report.command",
    "runs": "gpu_plan.commands.runs",
    "doctor": "gpu_plan.commands.doctor.command",
    "check": "gpu_plan.commands.check.command",
    "from-config": "gpu_plan.commands.from_config",
    "explore": "gpu_plan.commands.explore",
}
"""Verbs that exist, and the module that is imported only for its own."""
LATER_VERBS = ("calibrate",)
"""Verbs of the interface that later versions bring; refused by name."""
