"""Where the next key may lead: what the planner works out while nobody asks it anything. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

from gpu_plan.tui.choices import GPUS
from gpu_plan.tui.state import State

_USUAL = ("strategy", "micro-batch", "batch", "offload", "checkpointing", "grad-accum", "context", "tp")
"""Options that people try first."""
_OTHER_TRACES = ("attention", "peft", "lora-rank", "quantize", "kv-dtype")
"""What almost always needs a trace of its own, beside which those in use would have to be forgotten."""


@dataclass(frozen=True, slots=True)
class Move:
    """What one key does: an option, `gpus` or `gpu kind`, moved on or back."""

    name: str
    forward: bool

    @property
    def back(self) -> "Move":
        return Move(self.name, not self.forward)


def neighbours(state: State, value: Callable[[str], str], last: Move | None = None) -> dict[State, Move]:
    """States one key away, the likeliest first: the `last` move again, then its reverse, then the usual ones.

    `value`: what the screen shows for an option. What a key does not change is not among them.
    """
    found: dict[State, Move] = {}
    for move in _moves(state, last):
        after = moved(state, move, value)
        if after != state:
            found.setdefault(after, move)
    return found


def moved(state: State, move: Move, value: Callable[[str], str]) -> State:
    """The state after a move, as the application makes it."""
    if move.name == "gpus":
        return state.more_gpus(move.forward)
    if move.name == "gpu kind":
        return state.other_gpu(GPUS, move.forward)
    return state.stepped(move.name, move.forward, shown=value(move.name))


def _moves(state: State, last: Move | None) -> list[Move]:
    stepped = [name for name in state.menu.stepped if name not in _OTHER_TRACES]
    usual = [name for name in _USUAL if name in stepped]
    names = [*usual, "gpus", "gpu kind", *(name for name in stepped if name not in usual)]
    moves = [Move(name, forward) for forward in (True, False) for name in names]
    first = [move for move in ([last, last.back] if last else []) if move in moves]
    return [*first, *(move for move in moves if move not in first)]
