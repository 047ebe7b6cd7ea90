"""What has been stood in for, or would have to be."""

from dataclasses import dataclass, field

from gpu_plan.planner.errors import InputError


class NotAtHandError(InputError):
    """Data that the script loads are not there, and no stand-in was asked for."""


@dataclass(slots=True)
class Told:
    """Stand-ins in the order in which they were asked for."""

    asked: bool = True
    """Whether stand-ins are wanted; without them, what is missing ends the capture with the offer of one."""
    absent: frozenset[str] = frozenset()
    """Names of the hub of which no config is to be had."""
    lines: list[str] = field(default_factory=list)
    """One sentence each, for people."""

    def need(self, what: str) -> None:
        """`what` is not at hand. NotAtHandError unless stand-ins are wanted."""
        if not self.asked:
            raise NotAtHandError(f"{what} is not at hand: --data standin plans with a small stand-in, and names it")

    def tell(self, line: str) -> None:
        """Notes a stand-in once."""
        if line not in self.lines:
            self.lines.append(line)
