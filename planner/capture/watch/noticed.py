"""Lines of the user's own files at which memory is decided: an optimizer is made, layers are checkpointed, ..."""

import contextlib
import functools
import gc
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from gpu_plan.planner.capture.imports import when_imported
from gpu_plan.planner.trace.recording.recorder import Held, RawTrace

OPTIMIZER, CHECKPOINTING, MODEL, HELD = "optimizer", "checkpointing", "second model", "held"
RETAINED, VOCABULARY, COPY = "retained graph", "vocabulary", "copy of a model"
"""Kinds of places."""
_FEW_BYTES = 512
PATIENCE_SECONDS = 20.0
"""How long a script may take from its first step to its third, or as long again as to its first, before it is no longer
watched: evaluation between steps can take hours."""


class Noticed:
    """The first line of each kind; `origin()` names the user's line that runs now."""

    def __init__(self, origin: Callable[[], str]) -> None:
        self._origin = origin
        self.places: dict[str, str] = {}

    def note(self, kind: str) -> None:
        """Something of this kind happens now; outside of the user's files nothing is noted."""
        if kind not in self.places and (place := self._origin()):
            self.places[kind] = place

    def watch(self, stack: contextlib.ExitStack) -> None:
        """Notes calls of torch's checkpoint and of transformers' own methods, for the rest of the process."""
        from torch.utils import checkpoint as home

        original = home.checkpoint

        @functools.wraps(original)
        def checkpoint(*args: Any, **kwargs: Any) -> Any:
            self.note(CHECKPOINTING)
            return original(*args, **kwargs)

        stack.enter_context(mock.patch.object(home, "checkpoint", checkpoint))
        when_imported("transformers.modeling_utils", self._watch_methods)

    def _watch_methods(self, module: Any) -> None:
        self._watch_method(module.PreTrainedModel, "gradient_checkpointing_enable", CHECKPOINTING)
        self._watch_method(module.PreTrainedModel, "resize_token_embeddings", VOCABULARY)

    def _watch_method(self, owner: Any, name: str, kind: str) -> None:
        method = getattr(owner, name)

        @functools.wraps(method)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.note(kind)
            return method(*args, **kwargs)

        setattr(owner, name, watched)


@dataclass(frozen=True, slots=True)
class HeldPlaces:
    """What a script never gives back."""

    tensors: list[int]
    """Numbers of the storages in the trace."""
    place: str = ""
    """The user's line that made most of their bytes."""


def held_places(raw: RawTrace, held: Sequence[Held]) -> HeldPlaces:
    """The recording's storages that are still held, those of a few bytes (a loss that is averaged) left out."""
    number = {id(tensor): tid for tid, tensor in enumerate(raw.tensors)}
    kept = [one.tensor for one in held if id(one.tensor) in number and one.tensor.nbytes > _FEW_BYTES]
    by_line: dict[str, int] = {}
    for tensor in kept:
        by_line[tensor.origin] = by_line.get(tensor.origin, 0) + tensor.nbytes
    named = {line: size for line, size in by_line.items() if line}
    return HeldPlaces([number[id(tensor)] for tensor in kept], max(named, key=named.__getitem__, default=""))


class Afterwards:
    """Watches a script from its first step to the beginning of its third: what is still held then, it never gives back.

    `deliver(held)` is called once: at the third step, when patience ends, or when the script does.
    """

    def __init__(self, held: Sequence[Held], deliver: Callable[[list[Held]], None], seconds_so_far: float) -> None:
        self._held, self._deliver = held, deliver
        self._steps = 0
        self._lock = threading.Lock()
        timer = threading.Timer(max(PATIENCE_SECONDS, seconds_so_far), self.end)
        timer.daemon = True
        timer.start()

    def stepped(self) -> None:
        """A later optimizer step is done."""
        self._steps += 1

    def forward(self) -> None:
        """A forward pass begins: by that of the third step, the loop has bound all its variables anew."""
        if self._steps:
            gc.collect()  # what only a cycle of garbage holds is nobody's
            self._finish([held for held in self._held if held.storage() is not None])

    def end(self) -> None:
        """The script was not seen for long enough: nothing is known."""
        self._finish([])

    def _finish(self, held: list[Held]) -> None:
        with self._lock:
            self._deliver(held)
