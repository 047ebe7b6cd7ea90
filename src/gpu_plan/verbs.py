"""The verbs of the command line: those that exist, and those that later versions bring."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_plan.planner.options.parser import Parser

VERBS = {
    "models": "gpu_plan.commands.models",
    "gpus": "gpu_plan.commands.gpus",
    "diff": "gpu_plan.commands.diff",
    "export": "gpu_plan.commands.export",
    "convert": "gpu_plan.commands.convert",
    "report": "gpu_plan.commands.report.command",
    "runs": "gpu_plan.commands.runs.command",
    "cancel": "gpu_plan.commands.runs.cancel",
    "doctor": "gpu_plan.commands.doctor.command",
    "check": "gpu_plan.commands.check.command",
    "from-config": "gpu_plan.commands.from_config",
    "calibrate": "gpu_plan.commands.calibrate",
    "explore": "gpu_plan.commands.explore",
    "help": "gpu_plan.commands.help.command",
    "completion": "gpu_plan.commands.completion.command",
}
"""Verbs that exist, and the module that is imported only for its own."""


def verb_parser(verb: str) -> "Parser":
    """Parser of the words behind a verb. KeyError for no verb."""
    from gpu_plan.planner.options.parser import Parser

    module = import_module(VERBS[verb])
    parser = Parser(prog=f"plan {verb}", allow_abbrev=False, description=module.__doc__)
    module.add_arguments(parser)
    return parser
