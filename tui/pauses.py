"""Garbage is looked for while nobody waits: in the midst of a key it would take as long as the key itself."""

import gc

_MUCH = 150_000
"""Objects that may come before it is looked for whatever goes on: of a hundred keys without a pause between them."""


def without_pauses() -> None:
    """What imports leave behind never becomes garbage: walking it would only add pauses. What comes later waits for
    `clear_up`."""
    gc.freeze()
    gc.set_threshold(_MUCH, 20, 20)


def clear_up(*, young: bool = False) -> None:
    """Nobody waits. `young`: of what came since the last time alone, a millisecond."""
    gc.collect(0 if young else 2)


class Settled:
    """The same where much is kept for good: what is left counts as there from the start, and is walked again seldom."""

    _SELDOM = 16

    def __init__(self) -> None:
        self._times = 0

    def clear_up(self) -> None:
        """Nobody waits."""
        self._times += 1
        if self._times % self._SELDOM == 0:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
