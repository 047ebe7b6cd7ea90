"""What follows from a trace alone, kept for whoever asks again: many ranks are laid out from one trace."""

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from gpu_plan.planner.trace.events import StepTrace

P = ParamSpec("P")
T = TypeVar("T")


def of_trace(make: Callable[Concatenate[StepTrace, P], T]) -> Callable[Concatenate[StepTrace, P], T]:
    """Keeps what a function gives for a trace and its further, hashable arguments, as long as there is the trace.

    Traces are told apart as objects, which nobody changes; what is given is shared, and is not to be changed either.
    """
    kept: dict[int, tuple[weakref.ref[StepTrace], dict[object, Any]]] = {}

    @wraps(make)
    def remembered(trace: StepTrace, /, *args: P.args, **kwargs: P.kwargs) -> T:
        number = id(trace)
        if number not in kept:
            kept[number] = weakref.ref(trace, lambda _: kept.pop(number, None)), {}
        found = kept[number][1]
        key = (args, *sorted(kwargs.items())) if kwargs else args
        if key not in found:
            found[key] = make(trace, *args, **kwargs)
        value: T = found[key]
        return value

    return remembered
