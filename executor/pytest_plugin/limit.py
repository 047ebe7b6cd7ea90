"""What a limit says: read from a marker or an argument, refused in one line where it makes no sense."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.units import format_bytes, parse_bytes

DEFAULT_GPU = "A100-40GB"
KINDS = ("allocated", "reserved", "device")
"""`torch.cuda.max_memory_allocated`, `torch.cuda.max_memory_reserved`, and what nvidia-smi shows."""
TASKS = ("train", "infer")
_KEYS = ("limit", "gpu", "of", "task")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Most that a block may take of one GPU."""

    nbytes: int
    gpu: str = DEFAULT_GPU
    of: str = "allocated"
    task: str = "train"

    @property
    def text(self) -> str:
        return format_bytes(self.nbytes)


def one_line_failure(message: str) -> BaseException:
    """What ends a test with a message and no traceback; to be raised `from None`."""
    return pytest.fail.Exception(message, pytrace=False)


def limit_bytes(limit: object) -> int:
    """Bytes from `14 GiB` or a whole number. PlanError in one line for anything else."""
    if isinstance(limit, str):
        return parse_bytes(limit)
    if isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0:
        return limit
    raise PlanError(f"a limit is a size such as '14 GiB' or a number of bytes, not {limit!r}")


def one_of(what: str, value: object, known: Sequence[str]) -> str:
    """`value` where it is one of `known`. PlanError in one line that names the nearest."""
    if isinstance(value, str) and value in known:
        return value
    raise PlanError(f"{what}={value!r} is not one of {', '.join(known)}.{did_you_mean(str(value), known)}")


def limit_of_marker(args: Sequence[object], kwargs: Mapping[str, object]) -> Limit:
    """The limit that a marker's arguments give; fails the test in one line where they make no sense."""
    try:
        unknown = next((key for key in kwargs if key not in _KEYS), None)
        if unknown is not None:
            raise PlanError(f"there is no argument {unknown!r}.{did_you_mean(unknown, _KEYS)}")
        given = {**dict(zip(_KEYS, args, strict=False)), **kwargs}
        if len(args) > 1 or "limit" not in given or (args and "limit" in kwargs):
            raise PlanError("it takes one limit such as '14 GiB', and the rest by name: gpu, of, task")
        return Limit(
            nbytes=limit_bytes(given["limit"]),
            gpu=known_gpu(given.get("gpu", DEFAULT_GPU)),
            of=one_of("of", given.get("of", KINDS[0]), KINDS),
            task=one_of("task", given.get("task", TASKS[0]), TASKS),
        )
    except PlanError as problem:
        raise one_line_failure(f"limit_gpu_memory: {problem}") from None


def known_gpu(gpu: object) -> str:
    """The name of one known GPU. PlanError in one line for anything else."""
    from gpu_plan.planner.capture.block.gpu import one_gpu

    if not isinstance(gpu, str):
        raise PlanError(f"gpu={gpu!r} is not a name such as A100-40GB")
    one_gpu(gpu)
    return gpu
