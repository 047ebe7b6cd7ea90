"""What the interface names and this version refuses."""

from gpu_plan.planner.options import parser as options
from gpu_plan.planner.options import settings
from gpu_plan.planner.options.training import reading as workload_options
from gpu_plan.planner.strategy.known import NOT_BUILT

_WIDTH = 118


def not_built() -> str:
    """Everything of the interface that the code refuses by name, as a Markdown list."""
    values = ["--kv-dtype int8", "--kv-dtype int4", "--kv-dtype int2", *(f"--strategy {name}" for name in NOT_BUILT)]
    values += [f"{option} {value}" for option, later in workload_options._LATER.items() for value in later]
    kinds = {
        "options": [option.name for option in options._LATER],
        "values": values,
        "settings": [f"--set {key}" for key in settings.LATER],
    }
    return "\n".join(_item(kind, names) for kind, names in kinds.items() if names)


def _item(kind: str, names: list[str]) -> str:
    lines = [f"- {kind}:"]
    for name in names:
        word = f" `{name}`{'' if name is names[-1] else ','}"
        if len(lines[-1]) + len(word) > _WIDTH:
            lines.append(" ")
        lines[-1] += word
    return "\n".join(lines)
