"""The shipped GPU facts (gpus.toml), read once, and the search by name."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.hardware import names
from gpu_plan.planner.hardware.gpu import Fact, Gpu, Interval, Link, Price, UsableBasis
from gpu_plan.planner.hardware.user_gpus import parse_user_gpu
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.plain.facts import facts
from gpu_plan.planner.units import GIB, MIB

_FACT_KEYS = ("value", "source", "kind", "note")


@functools.cache
def catalog_document() -> dict[str, Any]:
    """gpus.toml as it stands."""
    return facts(Path(__file__).with_name("gpus.toml"))


def _source(text: str) -> str:
    sources: dict[str, str] = catalog_document()["sources"]
    return sources.get(text, text)


def _flat_facts(table: Mapping[str, Any]) -> Iterator[tuple[str, Fact]]:
    for key, entry in table.items():
        if key == "peak_tflops":
            for dtype, peak in entry.items():
                yield f"{key}.{dtype}", _fact(peak)
        elif isinstance(entry, dict) and "source" in entry:
            yield key, _fact(entry)


def _fact(entry: Mapping[str, Any]) -> Fact:
    rest = {key: value for key, value in entry.items() if key not in _FACT_KEYS}
    note = "; ".join([entry.get("note", ""), *([_tool(rest)] if "tool" in rest else [])]).strip("; ")
    value = entry["value"] if "value" in entry else _shown(rest)
    return Fact(value=value, source=_source(entry["source"]), kind=entry["kind"], note=note)


def _tool(rest: Mapping[str, Any]) -> str:
    return f"{rest['tool']}: {rest['printed']}"


def _shown(rest: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in rest.items())


def _usable(table: Mapping[str, Any]) -> tuple[int | None, UsableBasis]:
    entry = table.get("usable_bytes")
    if entry is not None:
        tool: str = entry["tool"]
        if tool == "nvidia-smi":
            return entry["value"], "nvidia-smi"
        return entry["value"], "vendor tool" if tool == "hl-smi" else "torch"
    if "marketed_gb" in table:
        return table["marketed_gb"]["value"] * GIB, "marketed"
    return None, "this machine"


def _scaled(table: Mapping[str, Any], key: str, factor: float) -> float | None:
    return table[key]["value"] * factor if key in table else None


def _link(table: Mapping[str, Any], key: str) -> Link | None:
    entry = table.get(key)
    if entry is None:
        return None
    rate = entry.get("gb_per_s")
    return Link(
        type=entry["type"],
        bytes_per_s=None if rate is None else rate * 1e9,
        span=entry.get("span"),
        peer=entry.get("peer", True),
        basis=_fact(entry).basis,
    )


def _context(entry: Mapping[str, Any]) -> Interval:
    return Interval(
        low=entry["low_mib"] * MIB,
        expected=entry["expected_mib"] * MIB,
        high=entry["high_mib"] * MIB,
        basis=_fact(entry).basis,
    )


def _prices(entries: list[Mapping[str, Any]]) -> tuple[Price, ...]:
    return tuple(
        Price(
            usd_per_hour=entry["usd_per_hour"],
            provider=entry["provider"],
            date=entry["date"],
            source=_source(entry["source"]),
        )
        for entry in entries
    )


def _capability(table: Mapping[str, Any]) -> tuple[int, int] | None:
    if "compute_capability" not in table:
        return None
    major, minor = table["compute_capability"]["value"].split(".")
    return int(major), int(minor)


_REQUIRED = ("name", "short", "vendor", "architecture", "form", "match", "context")


def check_entry(gpu_id: str, table: Mapping[str, Any]) -> None:
    """ValueError, in one line, for an entry of gpus.toml that lacks what no GPU can do without."""
    missing = [key for key in _REQUIRED if key not in table]
    if missing:
        raise ValueError(
            f"gpus.toml, [gpus.{gpu_id}]: {', '.join(missing)} is missing: docs/extending/gpu.md says what it is"
        )


def _gpu(gpu_id: str, table: Mapping[str, Any]) -> Gpu:
    check_entry(gpu_id, table)
    usable, basis = _usable(table)
    marketed = _scaled(table, "marketed_gb", GIB)
    init = table["context"].get("init_mib")
    value = {key: entry["value"] for key, entry in table.items() if isinstance(entry, dict) and "value" in entry}
    return Gpu(
        id=gpu_id,
        name=table["name"],
        short=table["short"],
        vendor=table["vendor"],
        architecture=table["architecture"],
        form_factor=table["form"],
        aliases=(*table["match"]["names"], *table.get("device_names", ())),
        marketed_bytes=None if marketed is None else round(marketed),
        usable_bytes=usable,
        usable_basis=basis,
        compute_capability=_capability(table),
        sm_count=value.get("sm_count"),
        bandwidth_bytes_per_s=_scaled(table, "bandwidth_gb_per_s", 1e9),
        peak_flops={dtype: peak["value"] * 1e12 for dtype, peak in table.get("peak_tflops", {}).items()},
        link=_link(table, "link"),
        host_link=_link(table, "host_link"),
        node_size=value.get("node_size"),
        network_bytes_per_s=_scaled(table, "network_gb_per_s", 1e9),
        tdp_watts=value.get("tdp_w"),
        context=_context(table["context"]),
        context_at_init=None if init is None else init * MIB,
        prices=_prices(table.get("prices", [])),
        facts=dict(_flat_facts(table)),
    )


@functools.cache
def load_gpus() -> dict[str, Gpu]:
    """Every shipped GPU by id, in the order in which ambiguous names prefer them."""
    return {gpu_id: _gpu(gpu_id, table) for gpu_id, table in catalog_document()["gpus"].items()}


@functools.cache
def _ids_by_key() -> dict[str, str]:
    found: dict[str, str] = {}
    for gpu_id, table in catalog_document()["gpus"].items():
        match = table["match"]
        own = [*names.keys(match["names"], match["forms"], match["sizes"])]
        own += [names.squash(name) for name in (gpu_id, table["short"], table["name"], *table.get("device_names", ()))]
        for key in own:
            found.setdefault(key, gpu_id)
    return found


def match_gpu(text: str) -> Gpu | None:
    """The shipped GPU that `text` names, or None."""
    gpu_id = _ids_by_key().get(names.squash(text))
    return load_gpus()[gpu_id] if gpu_id else None


def find_gpu(text: str, extra_gpus: Mapping[str, object] | None = None, also_known: Iterable[str] = ()) -> Gpu:
    """The GPU that `text` names; the user's own (`[tool.plan.gpus.NAME]`, raw tables) come first.

    `also_known` are other names that may have been meant.

    Case, punctuation and brand words do not count; of several that fit, the first in gpus.toml is meant (SXM
    before PCIe, bare A100 = 40 GB, bare H100 = 80 GB). Raises InputError with the nearest names.
    """
    key = names.squash(text)
    for name, table in (extra_gpus or {}).items():
        if key and names.squash(name) == key:
            return parse_user_gpu(name, table)
    found = match_gpu(text)
    if found is not None:
        return found
    if re.fullmatch(r"(apple)?m[1-9](pro|max|ultra)?", key):
        raise InputError(
            f"GPU {text[: names.MAX_NAME]!r} is Apple's, which runs no CUDA: plans are of NVIDIA's and AMD's GPUs and"
            " of cpu"
        )
    known = [*(extra_gpus or {}), *(gpu.short for gpu in load_gpus().values()), *also_known]
    raise InputError(
        f"GPU {text[: names.MAX_NAME]!r} is unknown.{did_you_mean(text[: names.MAX_NAME], known)} "
        "`plan gpus` lists the known ones; others go under [tool.plan.gpus.NAME]"
    )
