"""Which optimizer steps make one step of the job, where several optimizers take turns. Pure."""

from collections.abc import Hashable
from weakref import WeakKeyDictionary


class Rounds:
    """Counts each optimizer apart: the job has made as many steps as its busiest optimizer."""

    def __init__(self) -> None:
        self.steps = 0
        self._counts: WeakKeyDictionary[Hashable, int] = WeakKeyDictionary()

    def stepped(self, optimizer: Hashable) -> bool:
        """Whether this step of `optimizer` begins a new step of the job; otherwise it belongs to the latest one."""
        count = self._counts.get(optimizer)
        if count is None:
            # One that comes late joins the round; one that replaces others, which are gone, goes on from them.
            count = max(self.steps - (1 if len(self._counts) else 0), 0)
        self._counts[optimizer] = count + 1
        if count + 1 > self.steps:
            self.steps = count + 1
            return True
        return False
