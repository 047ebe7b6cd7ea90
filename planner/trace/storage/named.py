"""Names of a trace's modules, operators, parameters, buffers and inputs, the same in many traces of a model."""

import json
from functools import partial
from sys import intern
from typing import Any

from gpu_plan.planner.trace.events import ParameterInfo
from gpu_plan.planner.trace.storage.common import common_row, digest, known_row

NAMED = ("modules", "operator_names", "parameters", "buffer_bytes", "inputs")
"""Lists that stand side by side in a trace's text."""


def named(text: bytes) -> dict[str, Any]:
    """Those lists of a JSON text, each held once however many traces have it. KeyError, TypeError or ValueError for
    another text."""
    key = digest(text)
    found: dict[str, Any] = {name: known_row((name, key)) for name in NAMED}
    if any(one is None for one in found.values()):
        rest = json.loads(text)
        made = {
            "modules": [intern(name) for name in rest["modules"]],
            "operator_names": rest["operator_names"],
            "parameters": [_parameter(*row) for row in rest["parameters"]],
            "buffer_bytes": [(name, size) for name, size in rest["buffer_bytes"]],
            "inputs": [(name, per_sample, fixed) for name, per_sample, fixed in rest["inputs"]],
        }
        found = {name: common_row((name, key), partial(list, made[name])) for name in NAMED}
    return found


def _parameter(
    name: str,
    shape: list[int],
    dtype: str,
    trainable: bool,
    module: str,
    split: bool = False,
    experts: bool = False,
    tied_to: str = "",
) -> ParameterInfo:
    """A parameter; the last three stand there of models alone that are spread over ranks."""
    return ParameterInfo(
        name=intern(name),
        shape=tuple(shape),
        dtype=intern(dtype),
        trainable=trainable,
        module=intern(module),
        split=bool(split),
        experts=bool(experts),
        tied_to=str(tied_to),
    )
