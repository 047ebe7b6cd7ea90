"""What ZeRO-3's coordinator takes and gives, counted."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """Elements that the coordinator holds, where a strategy would place them."""

    held: dict[int, int] = field(default_factory=dict)
    taken: int = 0
    peak: int = 0

    def take(self, at: int, elements: int, label: str, padded: Sequence[int] = ()) -> int:
        self.taken += 1
        self.held[self.taken] = elements
        self.peak = max(self.peak, self.elements)
        return self.taken

    def fetch(self, at: int, elements: int, parameter: int) -> int:
        return 0  # partitions lie on the device

    def gather(self, at: int, elements: int, parameters: Sequence[int]) -> None: ...

    def limit(self, at: int) -> None: ...

    def use(self, at: int, landed: int) -> None: ...

    def give(self, at: int, ticket: int) -> None:
        if ticket:
            del self.held[ticket]

    @property
    def elements(self) -> int:
        return sum(self.held.values())
