"""How a generation is spread over devices: what one option of it means for the others. Pure."""

from collections.abc import Mapping

_SPREAD = ("strategy", "tp", "pp", "offload")
_LEAST = "2"
"""The degree with which tensor parallel or stages begin."""


def spread(options: Mapping[str, str], changed: str, *, alone: bool) -> dict[str, str]:
    """`options` after `changed`, the others following it: the command line refuses what contradicts itself.

    `alone`: whether there is one device. A degree makes the strategy, a strategy its degree, an offload the device map.
    """
    found = dict(options)
    if changed in ("tp", "pp"):
        whole = found[changed] == "1"
        found["strategy"] = ("single" if alone else "replicas") if whole else changed
    if changed == "offload" and found["offload"] == "all":
        found["strategy"] = "device-map"
    strategy = found.get("strategy")
    for name in ("tp", "pp"):
        if name != strategy:
            found.pop(name, None)
        elif found.get(name, "1") == "1":
            found[name] = _LEAST
    if strategy != "device-map":
        found["offload"] = "none"
    return found


def without_leftovers(given: Mapping[str, str], focus: Mapping[str, str]) -> dict[str, str]:
    """Both together; where the focus names a strategy, nothing given says otherwise how it is spread."""
    kept = {name: value for name, value in given.items() if "strategy" not in focus or name not in _SPREAD}
    return {**kept, **focus}
