"""Answers what the step asks of values, since a meta tensor has none.

Each answer is a named policy: the site that asks, what it is told, and what that assumes. A site that is not
listed is an error with its file and line, never a guess.
"""

import linecache
import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.trace.inputs.known import KnownValues
from gpu_plan.planner.trace.recording.host_read_policies import POLICIES, Policy, overflow_policy

READS = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.is_nonzero.default,
    torch.ops.aten.equal.default,
    torch.ops.aten.allclose.default,
}
_OWN = (__name__.rpartition(".")[0], "gpu_plan.planner.capture")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a host read is told."""

    value: Any


class UnknownHostReadError(InputError):
    """The step reads a value that no policy answers."""


class HostReads:
    """Answers of one trace: the true value where it follows from the inputs, else a named policy's."""

    def __init__(self, known: KnownValues) -> None:
        self._known = known
        self._answered: dict[str, None] = {}

    def answer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer | None:
        """The answer if `func` reads a meta tensor on the host or needs its values for a shape, else None."""
        known, value = self._known.answer(func, args, kwargs)
        if known:
            if func in READS:
                self._note(_asking_frame(), f"{value!r} (follows from the inputs)")
            return Answer(value)
        if func not in READS or not isinstance(args[0], torch.Tensor) or args[0].device.type != "meta":
            return None
        frame = _asking_frame()
        policy = _policy_for(frame) or _policy_of_line(frame)
        if policy is None:
            raise UnknownHostReadError(
                f"the model reads a tensor's value at {_site(frame)} and no policy answers it: "
                "the step depends on data and cannot be traced"
            )
        self._note(frame, f"{policy.value} ({policy.assumes})")
        return Answer(policy.value)

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Keeps the values of small integer tensors up to date."""
        self._known.follow(func, args, kwargs, out)

    def _note(self, frame: FrameType, answer: str) -> None:
        self._answered[f"{_site(frame)} -> {answer}"] = None

    def answered(self) -> list[str]:
        """Every site that was answered, in order of first use."""
        return list(self._answered)


def _site(frame: FrameType) -> str:
    return f"{_short(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}"


def _asking_frame() -> FrameType:
    """The innermost frame outside torch and outside the recorder."""
    frame: FrameType | None = sys._getframe(1)
    last = frame
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith((*_OWN, "torch.", "torch")) or name.startswith("torchvision"):
            return frame
        last = frame
        frame = frame.f_back
    assert last is not None
    return last


def _policy_for(frame: FrameType | None) -> Policy | None:
    """Policies match the asking function or, for helpers inside it, one of its callers in the same library."""
    for _ in range(4):
        if frame is None:
            return None
        key = (frame.f_globals.get("__name__", ""), frame.f_code.co_name)
        policy = POLICIES.get(key) or POLICIES.get(("*", key[1]))
        if policy is not None:
            return policy
        frame = frame.f_back
    return None


def _policy_of_line(frame: FrameType) -> Policy | None:
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return overflow_policy(frame.f_globals.get("__name__", ""), line)


def _short(path: str) -> str:
    return path.rpartition("site-packages/")[2].rpartition("/lib/")[2]
