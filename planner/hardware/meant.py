"""What was probably meant by words that name no cluster: one line each."""

import re
from collections.abc import Iterable

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.hardware.catalog import load_gpus, match_gpu
from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.units import GIB

_MOST = 10
_BEHIND = re.compile(r"(?P<name>[a-z][a-z0-9 -]*?)\s*[x*:]\s*(?P<count>[0-9]{1,6})", re.IGNORECASE)
_BEFORE = re.compile(r"(?P<count>[0-9]{1,6})\s*(?:[*:,-]|\s)\s*(?P<name>[a-z][a-z0-9 -]*)", re.IGNORECASE)
_MANY = re.compile(r"(?:[0-9]+\s*x\s*)*(?P<name>[a-z0-9 -]*[0-9])s", re.IGNORECASE)
_SIZE = re.compile(r"(?:(?P<count>[0-9]{1,6})\s*x\s*)?(?P<size>[0-9]{1,3})\s*gi?b?(?:\s*vram)?", re.IGNORECASE)
_BETWEEN = re.compile(r"(?P<name>[a-z][a-z0-9 -]*?)\s*[x*]\s*(?P<count>[0-9]{1,6})-(?P<size>[0-9]+gb)", re.IGNORECASE)
_APPLE = re.compile(
    r"(?:[0-9]+\s*x\s*)?(?:apple\s*)?(?:m[1-9](?:\s*(?:pro|max|ultra))?|mac(?:book)?|mps|metal)", re.IGNORECASE
)
_ALL = ("all", "any", "available", "local", "gpu", "gpus", "cuda", "this", "mine")


def check_near_misses(spec: str, shown: str, machines: Iterable[str]) -> None:
    """InputError that names what was probably meant; nothing for what may be a cluster.

    `machines` are the names of machines that are known.
    """
    meant = _count_alone(spec) or _turned(spec) or _memory(spec) or _elsewhere(spec, machines)
    if meant is not None:
        raise InputError(f"--gpus {shown}{meant}")


def _count_alone(spec: str) -> str | None:
    if not spec.isdigit():
        return None
    named = [gpu.short for gpu in load_gpus().values() if _ends_in(gpu, spec)]
    if named:
        return f": did you mean {_either([f'1x{name}' for name in named])}?"
    count = spec.lstrip("0")
    return f": {spec} of which GPU? write it like {count}xH100" if count else " asks for no GPU: write it like 1xH100"


def _ends_in(gpu: Gpu, number: str) -> bool:
    """Whether people call it by a number: 4090 is the RTX 4090, 100 nothing in particular."""
    return len(number) == 4 and any(re.search(rf"(?<!\d){number}$", name) for name in (gpu.short, *gpu.aliases))


def _turned(spec: str) -> str | None:
    """The count behind the name, or another sign than `x` between the two."""
    behind = _BEHIND.fullmatch(spec)
    if behind is not None and match_gpu(behind["name"]) is not None:
        return f": the count goes first: {behind['count']}x{behind['name'].strip()}"
    between = _BETWEEN.fullmatch(spec)
    if between is not None and match_gpu(f"{between['name']}-{between['size']}") is not None:
        return f": the count goes first: {between['count']}x{between['name'].strip()}-{between['size']}"
    before = _BEFORE.fullmatch(spec)
    if before is not None and match_gpu(before["name"]) is not None:
        return f": did you mean {before['count']}x{before['name'].strip()}?"
    many = _MANY.fullmatch(spec)
    if many is not None and match_gpu(f"{many['name']}s") is None and match_gpu(many["name"]) is not None:
        return f": did you mean {spec[:-1]}?"
    return None


def _memory(spec: str) -> str | None:
    size = _SIZE.fullmatch(spec)
    if size is None:
        return None
    known = [gpu for gpu in load_gpus().values() if gpu.marketed_bytes == int(size["size"]) * GIB]
    if not known:
        return f" names no GPU: no card with {size['size']} GB is known; `plan gpus` lists them"
    names = [f"{size['count'] or '1'}x{gpu.short}" for gpu in known[:_MOST]]
    return f" names no GPU: with {size['size']} GB there are {', '.join(names)}"


def _elsewhere(spec: str, machines: Iterable[str]) -> str | None:
    """Words for what is here, Apple's devices, and the beginning of machines' names."""
    word = spec.lower()
    if word in _ALL:
        return " names no GPU: auto means those of this machine"
    if _APPLE.fullmatch(word):
        return ": Apple's GPUs are not planned for, whose memory is the host's; `plan gpus` lists what is"
    begun = [name for name in machines if re.match(rf"{re.escape(word)}[.-]", name)]
    return f" is no machine by itself: did you mean {_either(begun[:4])}?" if begun else None


def _either(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
